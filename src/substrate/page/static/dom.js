// What every module draws with: Preact, its hooks, and htm instead of a build step.
import { h, render } from './vendor/preact.mjs';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.mjs';
import htm from './vendor/htm.mjs';

export const html = htm.bind(h);
export { h, render, useEffect, useLayoutEffect, useMemo, useRef, useState };
