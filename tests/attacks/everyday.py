"""What developers do all day, in the order in which they would do it in one project.

A line is `PROGRAM:: COMMAND`, or just a command; it is left out where the program is not installed. All
run in one folder, one after the other, so that later ones use what earlier ones made.
"""

from typing import NamedTuple

_COMMANDS = r"""
pwd
ls -la
mkdir -p src/app tests docs
echo 'print("hello")' > src/app/main.py
cat src/app/main.py
printf 'one\ntwo\nthree\n' > docs/list.txt
wc -l docs/list.txt
head -n 1 docs/list.txt
tail -n 1 docs/list.txt
sort -r docs/list.txt
uniq -c docs/list.txt
grep -n two docs/list.txt
grep -rn hello src
sed -n '2p' docs/list.txt
sed -i 's/two/TWO/' docs/list.txt
awk '{print NR": "$0}' docs/list.txt
cut -c1-2 docs/list.txt
tr a-z A-Z < docs/list.txt
cp docs/list.txt docs/copy.txt
mv docs/copy.txt docs/moved.txt
diff docs/list.txt docs/moved.txt
rm docs/moved.txt
touch docs/empty.md
find . -name '*.py' -not -path './.git/*'
find . -type f | xargs wc -c | tail -1
du -sh .
df -h . | tail -1
stat -c %s docs/list.txt
file docs/list.txt || true
basename src/app/main.py
dirname src/app/main.py
realpath src
date +%Y
whoami || true
id -u
uname -s
env | grep -c PATH
echo $HOME
which sh
type cd
history | head -1 || true
seq 1 5
expr 2 + 3
test -f README.md && echo there
[ -d src ] && echo yes
for i in 1 2 3; do echo $i; done
x=$(ls | wc -l); echo $x
cd src && ls && cd ..
ls src/*
echo done > /tmp/note.txt && cat /tmp/note.txt
mktemp
tee docs/tee.txt < docs/list.txt
md5sum docs/list.txt
sha256sum docs/list.txt
base64 docs/list.txt | base64 -d
od -c docs/list.txt | head -2
xargs echo < docs/list.txt
tar czf docs.tgz docs
tar tzf docs.tgz
mkdir -p out && tar xzf docs.tgz -C out
gzip -k docs/list.txt
gunzip -c docs/list.txt.gz
rm -r out docs.tgz docs/list.txt.gz
chmod +x src/app/main.py
chmod 644 src/app/main.py
ln -s list.txt docs/link.txt
readlink docs/link.txt
cat docs/link.txt
rm docs/link.txt
sleep 0.1
true
sh -c 'exit 3'
ls no-such-file
ps aux | head -2
kill -0 $$
sleep 5 & kill $!; wait $! || true
timeout 5 echo quick
nproc
ulimit -n
printenv LANG || true
python3:: python3 --version
python3:: python3 src/app/main.py
python3:: python3 -c 'print(1 + 1)'
python3:: python3 -m json.tool <<< '{"a": 1}'
python3:: python3 -c 'import os; print(os.getcwd())'
python3:: python3 -m compileall -q src
python3:: python3 -m unittest discover -s tests || true
python3:: python3 -c "open('docs/py.txt','w').write('x')"
python3:: python3 -m zipfile -c docs.zip docs
python3:: python3 -m zipfile -l docs.zip
python3:: rm docs.zip
python3:: python3 -m venv --without-pip .venv
python3:: .venv/bin/python -c 'import sys; print(sys.prefix)'
python3:: python3 -c 'import tempfile; print(tempfile.gettempdir())'
python3:: python3 -c 'import socket as s; s.create_connection(s.create_server(("", 0)).getsockname())'
python3:: python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, 2]))'
python3:: python3 -c 'import sqlite3; sqlite3.connect("docs/x.db").execute("create table t (a)")'
python3:: python3 -c 'import subprocess; print(subprocess.check_output(["ls"]).decode())'
python3:: python3 -c 'import threading; threading.Thread(target=print, args=("t",)).start()'
python3:: python3 -m timeit -n 1 -r 1 pass
python3:: printf 'def test_it():\n    assert 1 + 1 == 2\n' > tests/test_it.py
pytest:: pytest -q tests
pytest:: pytest -q -k test_it
pip:: pip --version
pip:: pip list
pip:: pip config list
pip:: pip download --no-index nothing-here
make:: printf 'all: a.txt\na.txt:\n\techo a > a.txt\nclean:\n\trm -f a.txt\n' > Makefile
make:: make
make:: make -n
make:: make clean
make:: make -j2 all
cc:: printf '#include <stdio.h>\nint main(void) { puts("c"); return 0; }\n' > main.c
cc:: cc -O2 -Wall -o main main.c
cc:: ./main
cc:: cc -c main.c -o main.o
cc:: nm main.o | head -2
cc:: ar rcs libmain.a main.o
cc:: rm main main.o libmain.a
git:: git --version
git:: git config user.name Person && git config user.email p@example.invalid
git:: git add README.md main.py && git commit -q -m 'Begin'
git:: git init -q --bare target/up.git && git remote add origin ./target/up.git
git:: git push -q -u origin main
git:: git checkout -q -b topic --track origin/main && git branch -m topic done
git:: git checkout -q main && git branch -q -d done
git:: git remote set-url origin ./target/up.git && git fetch -q && git pull -q
git:: git config pull.rebase true && git config --get remote.origin.url
git:: rm -rf target && git remote remove origin
git:: git init -q -b main repo
git:: cd repo && git config user.name Person && git config user.email p@example.invalid && cd ..
git:: cd repo && echo '# Repo' > README.md && cd ..
git:: git -C repo status --short
git:: git -C repo add README.md
git:: git -C repo commit -q -m 'First commit'
git:: git -C repo log --oneline
git:: git -C repo show --stat HEAD
git:: git -C repo diff
git:: echo more >> repo/README.md && git -C repo diff --stat
git:: git -C repo add -A
git:: git -C repo commit -q -m 'Second commit'
git:: git -C repo log -1 --format=%s
git:: git -C repo branch feature
git:: git -C repo branch -a
git:: git -C repo checkout -q feature
git:: git -C repo switch -q main
git:: git -C repo checkout -q -b other
git:: echo other > repo/other.txt && git -C repo add . && git -C repo commit -q -m 'Other'
git:: git -C repo checkout -q main
git:: git -C repo merge -q other
git:: git -C repo tag v1
git:: git -C repo tag --list
git:: git -C repo rev-parse HEAD
git:: git -C repo blame README.md
git:: git -C repo stash list
git:: echo dirty >> repo/README.md && git -C repo stash -q
git:: git -C repo stash pop -q
git:: git -C repo checkout -q -- README.md
git:: git -C repo restore README.md
git:: git -C repo ls-files
git:: git -C repo grep more
git:: git -C repo cat-file -p HEAD
git:: git -C repo shortlog -s HEAD
git:: git -C repo describe --tags
git:: git -C repo remote -v
git:: git clone -q repo copy
git:: git -C copy pull -q
git:: git -C copy log --graph --oneline
git:: git -C copy commit -q --allow-empty -m 'Empty'
git:: git -C copy reset -q --soft HEAD~1
git:: git -C copy cherry-pick --help > /dev/null || true
git:: git -C copy rebase -q main
git:: git -C copy fetch -q
git:: git -C copy reflog | head -1
git:: git -C copy gc -q
git:: git -C copy worktree list
git:: git -C copy archive HEAD | tar t
git:: git -C copy format-patch -1 --stdout | head -1
git:: git -C copy fsck
git:: rm -rf copy
node:: node --version
node:: node -e 'console.log(1 + 1)'
node:: printf 'module.exports = 2;\n' > two.js && node -p 'require("./two")'
node:: node -e 'require("http").createServer().listen(0, "127.0.0.1", function () { this.close(); })'
node:: node -e 'require("fs").writeFileSync("docs/n.txt", "n")'
node:: node -e 'require("child_process").execSync("ls")'
npm:: npm --version
npm:: npm init -y
npm:: npm pkg set scripts.test='echo tested'
npm:: npm test
npm:: npm run
npm:: npm ls
npm:: npm config get registry
cargo:: cargo --version
cargo:: cargo init --vcs none crate
cargo:: cargo build --offline --manifest-path crate/Cargo.toml
cargo:: cargo test --offline --manifest-path crate/Cargo.toml
go:: go version
java:: java -version
javac:: printf 'class A { public static void main(String[] a) { } }\n' > A.java && javac A.java
javac:: java A
perl:: perl -e 'print 1 + 1'
ruby:: ruby -e 'puts 1 + 1'
sqlite3:: sqlite3 docs/s.db 'create table t (a); select 1;'
jq:: echo '{"a": 1}' | jq .a
curl:: curl --version
rg:: rg hello src
openssl:: openssl version
openssl:: echo hi | openssl dgst -sha256
zip:: zip -qr docs.zip docs && unzip -l docs.zip
vim:: vim --version | head -1
docker:: docker --version
ruff:: ruff --version
uv:: uv --version
rsync:: rsync -a docs/ backup/
bc:: echo '2 + 3' | bc
less:: less --version | head -1
ssh:: ssh -V
find . -name '*.pyc' -delete
rm -rf src/app/__pycache__ backup docs.zip
rm -rf repo
ls | sort | head
cat Makefile | grep all || true
echo 'NAME=value' > settings.ini
cat settings.ini
cmp docs/list.txt docs/tee.txt
paste docs/list.txt docs/tee.txt
join docs/list.txt docs/list.txt || true
split -l 1 docs/list.txt docs/part-
cat docs/part-*
rm docs/part-*
nl docs/list.txt
fold -w 2 docs/list.txt
column docs/list.txt || true
tac docs/list.txt
rev docs/list.txt || true
shuf docs/list.txt
comm docs/list.txt docs/tee.txt || true
yes | head -3
dd if=/dev/zero of=docs/zeros bs=1k count=4
truncate -s 100 docs/zeros
rm docs/zeros
install -m 644 docs/list.txt docs/installed.txt
mkdir -p a/b/c && rmdir -p a/b/c
pushd docs && popd
export NAME=value && echo $NAME
alias ll='ls -l' && alias
umask
getconf PAGE_SIZE
locale | head -1
"""


class Everyday(NamedTuple):
    """A command, and the program without which it is left out."""

    program: str
    command: str


def everyday() -> list[Everyday]:
    """All commands, in order."""
    found: list[Everyday] = []
    for line in filter(None, _COMMANDS.splitlines()):
        program, separator, command = line.partition(":: ")
        found.append(Everyday(program, command) if separator else Everyday("sh", line))
    return found
