"""Everything that concerns the user's own ``.git``, behind one class: `UserGit`."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.recorder.user_git.git_arrival import GitArrival as GitArrival
    from substrate.recorder.user_git.git_arrival import GitWatch as GitWatch
    from substrate.recorder.user_git.git_settings import GitLinks as GitLinks
    from substrate.recorder.user_git.git_settings import settings as settings
    from substrate.recorder.user_git.ref_moves import Effect as Effect
    from substrate.recorder.user_git.ref_moves import GitState as GitState
    from substrate.recorder.user_git.user_git import UserGit as UserGit

__getattr__ = lazy_names(
    __name__,
    {
        "git_arrival": "GitArrival, GitWatch",
        "git_settings": "GitLinks, settings",
        "ref_moves": "Effect, GitState",
        "user_git": "UserGit",
    },
)
