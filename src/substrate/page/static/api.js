// Requests to the page's own server. The secret is in this tab's storage and goes into a header.
const KEY = 'substrate-secret';

export class Failed extends Error {
  constructor(status, error) {
    super(error.message);
    Object.assign(this, { status, kind: error.kind, hint: error.hint });
  }
}

const headers = more => ({ Authorization: `Bearer ${sessionStorage.getItem(KEY) || ''}`, ...more });

async function answer(response) {
  let document;
  try { document = await response.json(); } catch { document = {}; }
  if (!response.ok) {
    throw new Failed(response.status, document.error || { kind: 'error', message: `The server answered ${response.status}`, hint: '' });
  }
  return document;
}

const lost = () => { throw new Failed(0, { kind: 'lost', message: 'Substrate stopped.', hint: 'Run substrate ui again and open the new link.' }); };

export async function get(route, query = {}, signal) {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== '' && one !== null) given.append(name, one);
    }
  }
  const text = given.toString();
  return answer(await fetch(text ? `${route}?${text}` : route, { headers: headers(), signal }).catch(e => e.name === 'AbortError' ? Promise.reject(e) : lost()));
}

export async function post(route, body, signal) {
  const sent = { 'Content-Type': 'application/json', 'X-Substrate': '1' };
  return answer(await fetch(route, { method: 'POST', headers: headers(sent), body: JSON.stringify(body), signal }).catch(e => e.name === 'AbortError' ? Promise.reject(e) : lost()));
}

/** Exchange the link's token for this tab's secret. The fragment leaves the address bar at once. */
export async function enter() {
  const token = location.hash.slice(1);
  if (token) {
    history.replaceState(null, '', location.pathname);
    const { secret } = await post('/page/exchange', { token });
    sessionStorage.setItem(KEY, secret);
  }
  return get('/page/settings');
}

/** Events by a streaming fetch: EventSource cannot send our header. Reconnects by itself. */
export function events(on, state) {
  let last = '', stopped = false, waits = 1;
  const run = async () => {
    while (!stopped) {
      try {
        const response = await fetch('/v1/events', { headers: headers(last ? { 'Last-Event-ID': last } : {}) });
        if (!response.ok) throw new Error('refused');
        state(null);
        waits = 1;
        await read(response.body, (event, id) => { if (id) last = id; on(event); });
      } catch { /* the server is gone, or was restarted */ }
      if (stopped) return;
      state(waits);
      await new Promise(done => setTimeout(done, waits * 1000));
      waits = Math.min(waits * 2, 16);
    }
  };
  run();
  return () => { stopped = true; };
}

async function read(body, on) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const field = name => part.split('\n').find(line => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field('event')) on({ name: field('event'), data: JSON.parse(field('data') || '{}') }, field('id'));
    }
  }
}
