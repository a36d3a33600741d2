"""What people do with git, as steps of shell lines: the table of `test_git_workflows`.

Every workflow begins in the repository that `SETUP` makes, with `origin.git` and `library` beside
it. A step may fail (a merge with a conflict does): it must fail the same way without Substrate.
"""

from __future__ import annotations

#: Runs in an empty directory, without Substrate, before every workflow.
SETUP = r"""
git init -q -b main repo
cd repo
printf 'one\ntwo\nthree\nfour\nfive\n' > a
echo b > b; mkdir -p src/deep; echo c > src/c; echo d > src/deep/d; echo 'run' > run.sh
chmod 755 run.sh; ln -s a link; printf '*.log\nbuild/\n' > .gitignore
git add . && git commit -qm 'first'
sed -i 's/two/TWO/' a && git commit -qam 'second'
echo more >> src/c && git add src/c && git commit -qm 'third'
git branch side HEAD~1
git checkout -q side && echo side > side && git add side && git commit -qm 'on the side'
sed -i 's/four/SIDE/' a && git commit -qam 'side: a'
git checkout -q main
git tag v1 HEAD~1
git init -q --bare -b main ../origin.git
git remote add origin ../origin.git && git push -q -u origin main side
git init -q -b main ../library
(cd ../library && echo lib > lib && git add lib && git commit -qm 'library')
"""

_CONFLICT = "git checkout -q main; sed -i 's/four/MAIN/' a; git commit -qam 'main: a'"
_SUB = "git -c protocol.file.allow=always submodule"
_FILTER = r"""
mkdir -p .git/big
cat > .git/clean <<'X'
#!/bin/sh
f=$(mktemp .git/big/new.XXXXXX); cat > $f; id=$(git hash-object --no-filters $f); mv $f .git/big/$id
echo "pointer $id"
X
cat > .git/smudge <<'X'
#!/bin/sh
read word id; cat .git/big/$id
X
chmod +x .git/clean .git/smudge
git config filter.big.clean .git/clean; git config filter.big.smudge .git/smudge
git config filter.big.required true
"""
_HOOKS = r"""
cat > .git/hooks/pre-commit <<'X'
#!/bin/sh
date -u -d @0 > stamp; git add stamp
X
printf '#!/bin/sh\necho "hooked: $(cat $1)" > $1\n' > .git/hooks/commit-msg
printf '#!/bin/sh\necho done >> .git/post.log\n' > .git/hooks/post-commit
printf '#!/bin/sh\nexit 1\n' > .git/hooks/pre-push
chmod +x .git/hooks/pre-commit .git/hooks/commit-msg .git/hooks/post-commit .git/hooks/pre-push
"""

#: Name -> (what is done before Substrate comes, the steps it records).
WORKFLOWS: dict[str, tuple[str, list[str]]] = {
    "add": (
        "",
        [
            "echo n > new; git add new",
            "echo x >> a; git add -u",
            "git add -N b; git status",
        ],
    ),
    "add parts": (
        "",
        [
            "sed -i 's/one/ONE/; s/five/FIVE/' a",
            "printf 's\\ny\\nn\\n' | git add -p a",
        ],
    ),
    "commit": (
        "",
        [
            "echo n > n; git add n; git commit -m n",
            "echo m >> n; git commit -am m",
        ],
    ),
    "a copy is committed": (
        "",
        [
            "cp b copy; git add copy && git commit -m copy",
        ],
    ),
    "amend": (
        "",
        [
            "git commit --amend -m 'third, amended'",
            "echo x > x; git add x",
            "git commit --amend --no-edit",
        ],
    ),
    "fixup and autosquash": (
        "",
        [
            "echo fix >> a; git commit -a --fixup HEAD~1",
            "GIT_SEQUENCE_EDITOR=true git rebase -i --autosquash HEAD~3",
        ],
    ),
    "stash and pop": (
        "",
        [
            "echo dirty >> a; echo s > staged; git add staged",
            "git stash",
            "git stash pop",
        ],
    ),
    "stash with untracked files": (
        "",
        [
            "echo u > u; echo l > x.log; echo a >> a",
            "git stash -u",
            "git stash apply",
            "git stash drop",
        ],
    ),
    "stash keeps the index": (
        "",
        [
            "echo s >> b; git add b; echo w >> b",
            "git stash",
            "git stash pop --index",
        ],
    ),
    "stash into a branch": (
        "",
        [
            "echo x >> a; git stash; git stash list",
            "git stash branch from-stash",
        ],
    ),
    "stash twice, drop one": (
        "",
        [
            "echo 1 >> a; git stash",
            "echo 2 >> b; git stash push -m two",
            "git stash drop 1",
            "git stash show -p",
        ],
    ),
    "revert": (
        "",
        [
            "git revert --no-edit HEAD",
            "git revert --no-edit HEAD",
        ],
    ),
    "revert with a conflict": (
        "",
        [
            "sed -i 's/TWO/2/' a; git commit -am 2",
            "git revert --no-edit HEAD~2",
            "git revert --abort",
        ],
    ),
    "cherry-pick": (
        "",
        [
            "git cherry-pick side~1",
            "git cherry-pick -x side",
        ],
    ),
    "cherry-pick with a conflict": (
        _CONFLICT,
        [
            "git cherry-pick side",
            "printf 'both\\n' > a; git add a",
            "git -c core.editor=true cherry-pick --continue",
        ],
    ),
    "rebase": (
        "git checkout -q side",
        [
            "git rebase main",
        ],
    ),
    "rebase -i": (
        "",
        [
            (
                "GIT_SEQUENCE_EDITOR=\"sed -i '1s/pick/reword/;2s/pick/squash/'\" "
                "GIT_EDITOR='sed -i 1s/^/edited:/' git rebase -i HEAD~2"
            ),
        ],
    ),
    "rebase -i, reordered and dropped": (
        "git checkout -q side",
        [
            "GIT_SEQUENCE_EDITOR='sed -i -n 2p' git rebase -i HEAD~2",
        ],
    ),
    "rebase -i stops to edit": (
        "",
        [
            "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -i HEAD~2",
            "echo in-between > between; git add between; git commit --amend --no-edit",
            "git rebase --continue",
        ],
    ),
    "rebase with a conflict": (
        _CONFLICT + "; git checkout -q side",
        [
            "git rebase main",
            "echo both > a; git add a",
            "git -c core.editor=true rebase --continue",
        ],
    ),
    "rebase given up": (
        _CONFLICT + "; git checkout -q side",
        [
            "git rebase main",
            "git rebase --abort",
        ],
    ),
    "rebase --onto with autostash": (
        "git checkout -q side",
        [
            "echo dirty >> b; git rebase --autostash --onto main HEAD~1",
        ],
    ),
    "merge": (
        "",
        [
            "git merge --no-edit side",
            "git log --oneline --graph",
        ],
    ),
    "fast-forward": (
        "git checkout -q -b behind HEAD~2",
        [
            "git merge --ff-only main",
        ],
    ),
    "merge with a conflict": (
        _CONFLICT,
        [
            "git merge side",
            "git status",
            "echo merged > a; git add a; git commit --no-edit",
        ],
    ),
    "a slow merge given up": (
        _CONFLICT,
        [
            "git merge side; sleep 1.1",
            "git merge --abort",
        ],
    ),
    "merge given up": (
        _CONFLICT,
        [
            "git merge side",
            "git merge --abort",
        ],
    ),
    "squash and octopus": (
        (
            "git branch other HEAD~1; git checkout -q other; echo o > o; git add o; git "
            "commit -qm o; git checkout -q main"
        ),
        [
            "git merge --squash other",
            "git commit -m squashed",
            "git merge --no-edit side other",
        ],
    ),
    "bisect": (
        "",
        [
            "git bisect start; git bisect bad; git bisect good HEAD~2",
            "git bisect run sh -c '! grep -q more src/c'",
            "git bisect reset",
        ],
    ),
    "a worktree": (
        "",
        [
            "git worktree add -q wt side",
            "git -C wt status --short; echo w > wt/w",
            "git -C wt add w; git -C wt commit -qm w",
            "git worktree remove wt",
        ],
    ),
    "a submodule": (
        "",
        [
            f"{_SUB} --quiet add ../library lib",
            "git commit -qm 'with library'",
            "echo more >> lib/lib; git -C lib commit -qam more",
            "git add lib; git commit -qm up",
            f"{_SUB} --quiet deinit -f lib",
        ],
    ),
    "gc": (
        "",
        [
            "git commit --amend -qm lost",
            "git gc -q",
            "git reflog expire --expire=now --all; git gc -q --prune=now",
            "git fsck --full",
        ],
    ),
    "repack and pack-refs": (
        "",
        [
            "git pack-refs --all; git repack -qad",
            "git branch late; git tag t",
            "git branch -D late",
            "git prune",
        ],
    ),
    "filter-branch": (
        "",
        [
            (
                "FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --tree-filter 'rm -f b' "
                "HEAD~2..HEAD > /dev/null"
            ),
            "git update-ref -d refs/original/refs/heads/main",
        ],
    ),
    "filters as LFS has them": (
        _FILTER,
        [
            (
                "echo '*.bin filter=big' > .gitattributes; git add .gitattributes; git commit "
                "-qm attributes"
            ),
            "head -c 9000 /dev/zero > x.bin; git add x.bin; git commit -qm big",
            "rm x.bin; git checkout x.bin",
            "git checkout -q HEAD~1; git checkout -q main",
        ],
    ),
    "line endings": (
        "git config core.autocrlf true",
        [
            "printf 'r\\r\\n' > crlf; git add crlf; git commit -qm crlf",
            "rm crlf b; git checkout .",
        ],
    ),
    "hooks": (
        _HOOKS,
        [
            "echo h > h; git add h; git commit -m h",
            "git push origin main",
            "git commit --allow-empty --no-verify -m quiet",
        ],
    ),
    "tags": (
        "",
        [
            "git tag light; git tag -a full -m 'a full one'",
            "git tag -d v1; git tag -f light HEAD~1",
            "git push -q origin full; git describe",
        ],
    ),
    "rm and mv": (
        "",
        [
            "git rm -q b; git mv src/c src/moved",
            "git commit -qm moved",
            "git rm -rq --cached src; git status --short",
            "git mv -f a run.sh",
        ],
    ),
    "sparse": (
        "",
        [
            "git sparse-checkout set --cone src/deep",
            "git sparse-checkout add src",
            "git sparse-checkout disable",
        ],
    ),
    "notes": (
        "",
        [
            "git notes add -m 'a note'",
            "git notes append -m more HEAD~1",
            "git notes remove",
        ],
    ),
    "format-patch and am": (
        "",
        [
            "git format-patch -q -2 -o ../patches side",
            "git am -q ../patches/*",
        ],
    ),
    "am with a conflict": (
        _CONFLICT,
        [
            "git format-patch -q -1 -o patches side",
            "git am -3 patches/*",
            "git am --abort",
        ],
    ),
    "apply a diff": (
        "",
        [
            "git diff side~1 side > ../d",
            "git apply --index ../d",
            "git apply -R ../d",
        ],
    ),
    "reset": (
        "",
        [
            "echo d >> a; git add a; git reset -q",
            "git reset --soft HEAD~1",
            "git reset --hard",
            "git reset --hard side",
            "git reset -q --keep main",
        ],
    ),
    "reset a path": (
        "",
        [
            "git reset -q HEAD~2 -- a; git status --short",
            "git checkout -- a",
        ],
    ),
    "switch and checkout": (
        "",
        [
            "git switch -q side",
            "git checkout -q -b topic",
            "git switch -q -",
            "git checkout -q --detach v1",
            "git switch -q main",
        ],
    ),
    "restore": (
        "",
        [
            "echo x >> a; git restore a",
            "git restore -s HEAD~2 a src",
            "git restore --staged --worktree .",
        ],
    ),
    "clean": (
        "",
        [
            "mkdir build; echo o > build/o; echo u > u; echo l > l.log",
            "git clean -fd",
            "git clean -fdX",
        ],
    ),
    "branches": (
        "",
        [
            "git branch -m main trunk; git branch new",
            "git branch -D side",
            "git branch -u origin/side new; git branch -vv",
        ],
    ),
    "fetch, pull and push": (
        (
            "git clone -q ../origin.git ../other; cd ../other; echo p > p; git add p; git "
            "commit -qm p; git push -q"
        ),
        [
            "git fetch -q",
            "git pull -q --rebase",
            "echo mine > mine; git add mine; git commit -qm mine",
            "git push -q",
            "git push -q --delete origin side; git fetch -q --prune",
        ],
    ),
    "config and attributes": (
        "",
        [
            "git config user.signingkey none; git config alias.st status",
            "git config --unset alias.st; git config --rename-section user me",
        ],
    ),
    "replace and graft": (
        "",
        [
            "git replace HEAD~1 side",
            "git log --oneline",
            "git replace -d HEAD~1",
        ],
    ),
    "ignored by name": (
        "",
        [
            "git update-index --assume-unchanged b; echo z >> b",
            "git update-index --skip-worktree a; git status --short",
            "git update-index --chmod=-x run.sh; git add --renormalize .",
        ],
    ),
    "a tree by plumbing": (
        "",
        [
            (
                "t=$(git write-tree); c=$(echo made | git commit-tree $t -p HEAD); git "
                "update-ref refs/heads/made $c"
            ),
            "git read-tree side; git checkout-index -fa",
            "git symbolic-ref HEAD refs/heads/made",
        ],
    ),
    "a new repository inside": (
        "",
        [
            "git init -q inner; cd inner; echo i > i; git add i; git commit -qm i",
            "cd inner; echo j >> i; git stash; git stash pop",
        ],
    ),
    "rerere and undo by reflog": (
        _CONFLICT + "; git config rerere.enabled true",
        [
            "git merge side",
            "echo kept > a; git add a; git commit -qm kept",
            "git reset -q --hard HEAD@{1}",
            "git merge side; cat a",
        ],
    ),
}
