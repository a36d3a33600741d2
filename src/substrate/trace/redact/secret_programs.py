"""Programs that take a secret at a place that has another meaning elsewhere: the rules, as data.

`secrets_by_program` applies them. To add a program, add a row here and a form to
``tests/unit/trace/redact/test_secret_forms.py``.
"""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """An option whose value is a secret."""

    flags: tuple[str, ...]
    #: ``-pSECRET`` in one word.
    attached: bool = True
    #: ``-p SECRET`` in two.
    separate: bool = True
    #: The separator between a name and the secret in the value; empty if all of it is secret.
    after: str = ""
    #: The flag may end a group of short ones: ``-su SECRET``.
    grouped: bool = False


class Command(NamedTuple):
    """One program, or one of its verbs, and where its secrets are."""

    #: Names of programs, separated by spaces.
    programs: str
    #: Plain words in lower case that follow each other; ``http-basic.*`` is the beginning of one.
    verbs: str = ""
    options: tuple[Option, ...] = ()
    #: Which of the plain words after the verbs are secrets, counted from 0.
    words: tuple[int, ...] = ()
    #: In such a word and in standard input: the separator between a name and the secret.
    after: str = ""
    #: From this plain word on, each ``NAME=value`` holds a secret.
    pairs_from: int = -1
    #: ``NAME value``: a word after one with the name of a secret is a secret.
    named: bool = False
    #: Standard input is a secret if one of these is among the words; ``=-`` is the end of a word.
    #: An empty text: always.
    stdin: tuple[str, ...] = ()
    #: One of these must be among the words, if any are given.
    needs: tuple[str, ...] = ()
    #: Other options that take a value, which is not one of the plain words.
    takes: tuple[str, ...] = ()
    #: What the text contains at least; the last verb, or else the programs, if empty.
    trigger: str = ""

    def triggers(self) -> tuple[str, ...]:
        """Lower-case texts of which one is in every text that this rule concerns."""
        if self.trigger:
            return (self.trigger,)
        verbs = self.verbs.rstrip("*").lower().split()
        return tuple(verbs[-1:] or self.programs.lower().split())


def _two_words(*flags: str) -> tuple[Option, ...]:
    """Options that are always separate from their value (or joined to it by ``=``)."""
    return (Option(flags, attached=False),)


_P = (Option(("-p",)),)
_P_APART = _two_words("-p")
_P_ATTACHED = (Option(("-p",), separate=False),)  # `-p` alone asks for it
_BIG_P = (Option(("-P",)),)
_W = (Option(("-w",)),)
_USER_AND_PASSWORD = Option(("-u", "--user", "--proxy-user", "-U"), after=":", grouped=True)
_AUTH = (Option(("-a", "--auth"), after=":"),)
_ALWAYS = ("",)

COMMANDS = (
    # HTTP
    Command("curl", options=(_USER_AND_PASSWORD, Option(("-b", "--cookie"), after="="),
                             *_two_words("--oauth2-bearer"))),
    Command("http https xh xhs", options=_AUTH),
    # databases and directories
    Command("mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlshow mysqlpump mycli",
            options=_P_ATTACHED),
    Command("mariadb mariadb-dump mariadb-admin mariadb-import mariadb-check", options=_P_ATTACHED),
    Command("mongo mongosh mongodump mongorestore mongoexport mongoimport", options=_P_APART),
    Command("redis-cli valkey-cli", options=_two_words("-a", "--pass")),
    Command("redis-cli valkey-cli", "auth", words=(0, 1)),
    Command("sqlcmd bcp tsql", options=_BIG_P),
    Command("sqlplus", words=(0,), after="/", takes=("-m",)),
    Command("cqlsh cypher-shell rabbitmqadmin", options=_P_APART),
    Command("neo4j-admin", "set-initial-password", words=(0,)),
    Command("etcdctl", options=(Option(("--user",), after=":"),)),
    Command("rabbitmqctl", "add_user", words=(1,), trigger="rabbitmqctl"),
    Command("rabbitmqctl", "change_password", words=(1,)),
    Command("mosquitto_pub mosquitto_sub", options=_BIG_P),
    Command("ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami ldapcompare", options=_W),
    Command("ldappasswd", options=(*_W, *_two_words("-s", "-a"))),
    # containers and clusters
    Command("docker podman nerdctl buildah skopeo helm oras crane az oc cf ibmcloud rancher regctl",
            "login", options=_P_APART, stdin=("--password-stdin",)),
    Command("docker podman", "secret create", stdin=("-",), trigger="secret"),
    Command("kubectl oc k3s", "create secret",
            options=(Option(("--from-literal",), after="="),), stdin=("=/dev/stdin",)),
    Command("kubectl oc k3s", "patch secret", options=_two_words("-p", "--patch")),
    # clouds
    Command("aws", options=_two_words("--secret-string", "--secret-binary"),
            trigger="secretsmanager"),
    Command("aws", "ssm put-parameter", options=_two_words("--value"), needs=("SecureString",),
            trigger="securestring"),
    Command("az", "keyvault secret set", options=_two_words("--value"), trigger="keyvault"),
    Command("gcloud", "auth activate-refresh-token", words=(1,)),
    Command("gcloud", "secrets", stdin=("--data-file=-", "--data-file=/dev/stdin", "-")),
    Command("fly flyctl", "secrets set", pairs_from=0, trigger="secrets"),
    Command("fly flyctl", "secrets import", stdin=_ALWAYS, after="=", trigger="secrets"),
    Command("doctl", "auth init", options=_two_words("-t"), trigger="doctl"),
    Command("vercel", options=_two_words("-t")),
    Command("vercel", "env add", stdin=_ALWAYS, trigger="vercel"),
    Command("wrangler", "secret put", stdin=_ALWAYS, trigger="secret"),
    Command("cf", "auth", words=(1,)),
    Command("mc", "alias set", words=(3,), trigger="alias"),
    Command("mc", "config host add", words=(3,), trigger="config"),
    Command("rclone", "obscure", words=(0,), stdin=("-",), trigger="rclone"),
    Command("rclone", "config", named=True, trigger="rclone"),
    Command("cloudflared", "service install", words=(0,), trigger="cloudflared"),
    Command("ngrok", "authtoken", words=(0,)),
    Command("ngrok", "add-authtoken", words=(0,)),
    Command("infracost", "auth login", words=(0,)),
    # secret stores
    Command("vault bao", "login", words=(0,), stdin=("-",)),
    Command("vault bao", "unwrap", words=(0,)),
    Command("vault bao", "token lookup", words=(0,), trigger="token"),
    Command("vault bao", "token renew", words=(0,), trigger="token"),
    Command("vault bao", "token revoke", words=(0,), trigger="token"),
    Command("vault bao", "operator unseal", words=(0,)),
    Command("vault bao", "kv put", pairs_from=0, stdin=("-", "=-"), trigger="vault"),
    Command("vault bao", "kv patch", pairs_from=0, stdin=("-", "=-"), trigger="vault"),
    Command("vault bao", "write", stdin=("-", "=-"), trigger="vault"),
    Command("pass", "insert", stdin=_ALWAYS, trigger="pass"),
    Command("secret-tool", "store", stdin=_ALWAYS, trigger="secret"),
    Command("bw", "unlock", words=(0,)),
    Command("bw", "login", words=(1,)),
    Command("security", "add-generic-password", options=_W),
    Command("security", "add-internet-password", options=_W),
    Command("keyctl", "padd", stdin=_ALWAYS, trigger="keyctl"),
    Command("pulumi", "config set", words=(1,), stdin=_ALWAYS, needs=("--secret",),
            takes=("-s", "--stack"), trigger="config"),
    Command("ansible-vault", "encrypt_string", words=(0,), stdin=_ALWAYS,
            takes=("--name", "-n", "--vault-id", "--stdin-name"), trigger="vault"),
    Command("knife", "bootstrap", options=_BIG_P, trigger="knife"),
    # packages, forges, services
    Command("poetry hatch flit", "publish", options=_P_APART, trigger="publish"),
    Command("twine", options=_P_APART),
    Command("uv", "publish", options=_two_words("-t", "-p"), trigger="publish"),
    Command("poetry composer", "config http-basic.*", words=(1,), trigger="http-basic."),
    Command("poetry", "config pypi-token.*", words=(0,), trigger="pypi-token."),
    Command("composer", "config github-oauth.*", words=(0,), trigger="github-oauth."),
    Command("composer", "config bearer.*", words=(0,), trigger="bearer."),
    Command("bundle bundler", "config", words=(1,), after=":"),
    Command("bundle bundler", "config set", words=(1,), after=":", trigger="config"),
    Command("cargo", "login", words=(0,), stdin=_ALWAYS, takes=("--registry",)),
    Command("nuget", "setapikey", words=(0,)),
    Command("nuget", "push", words=(1,), trigger="nuget",
            takes=("-Source", "-s", "--source", "-k", "--api-key", "-t", "--timeout", "-sk", "-ss",
                   "-ApiKey", "-ConfigFile", "-Timeout")),
    Command("nuget", "push", options=_two_words("-k", "-ApiKey"), trigger="nuget"),
    Command("nuget", "add source", options=_P_APART, trigger="nuget"),
    Command("dotnet", "user-secrets set", words=(1,), trigger="secret"),
    Command("conan", "login", options=_P_APART),
    Command("conan", "user", options=_P_APART, trigger="conan"),
    Command("gh", "secret set", options=(Option(("-b", "--body")),), stdin=_ALWAYS,
            trigger="secret"),
    Command("gh", "auth login", stdin=("--with-token",)),
    Command("glab", "auth login", options=_two_words("-t"), stdin=("--stdin",)),
    Command("glab", "variable set", options=_two_words("-v", "--value"), words=(1,),
            stdin=_ALWAYS, takes=("-R", "--repo", "-g", "--group", "-s", "--scope", "-t", "--type",
                                  "-v", "--value", "-d", "--description"), trigger="variable"),
    Command("travis", "encrypt", words=(0,), trigger="travis"),
    Command("wandb", "login", words=(0,)),
    Command("snyk", "auth", words=(0,)),
    Command("p4", options=_BIG_P),
    Command("p4", "login", stdin=_ALWAYS),
    Command("ejabberdctl", "register", words=(2,), trigger="ejabberd"),
    # keys, archives, machines
    Command("openssl", options=_two_words("-k", "-K"), stdin=("stdin", "fd:0")),  # -pass: by name
    Command("openssl", "passwd", words=(0,), takes=("-salt", "-in")),
    Command("openssl", "passwd", stdin=("-stdin",)),
    Command("ssh-keygen", options=_two_words("-N", "-P")),
    Command("gpg gpg2", stdin=("--passphrase-fd", "--passphrase-fd=0"), trigger="passphrase"),
    Command("cryptsetup", stdin=_ALWAYS),
    Command("zip", options=(Option(("-P", "--password"), grouped=True),)),
    Command("unzip", options=_BIG_P),
    Command("7z 7za 7zz 7zr", options=_P_ATTACHED),
    Command("rar unrar", options=(Option(("-p", "-hp"), separate=False),)),
    Command("pdftotext pdfimages pdftoppm pdfinfo", options=_two_words("-upw", "-opw"),
            trigger="pw"),
    Command("htpasswd mosquitto_passwd", words=(2,), needs=("-*b",), trigger="passwd"),
    Command("htpasswd", words=(1,), needs=("-*n",), trigger="passwd"),
    Command("htpasswd", stdin=("-*i",), trigger="passwd"),
    Command("sshpass", options=_P),
    Command("useradd usermod", options=_P_APART),
    Command("chpasswd", stdin=_ALWAYS, after=":"),
    Command("passwd smbpasswd", stdin=("--stdin", "-s"), trigger="passwd"),
    Command("kinit", stdin=_ALWAYS),
    Command("sudo", stdin=("-S", "--stdin", "-kS", "-Sk")),
    Command("su", "-", stdin=_ALWAYS, trigger="su -"),
    Command("smbclient", options=(Option(("-U",), after="%"),), words=(1,),
            takes=("-U", "-c", "-W", "-I", "-p", "-D", "-m", "-A", "-s", "-t")),
    Command("winexe rpcclient", options=(Option(("-U",), after="%"),)),
    Command("xfreerdp xfreerdp3 wlfreerdp", options=(Option(("/p:",), separate=False),),
            trigger="freerdp"),
    Command("rdesktop", options=_P),
    Command("ipmitool", options=_BIG_P),
    Command("snmpwalk snmpget snmpset snmpbulkwalk", options=_two_words("-A", "-X")),
    Command("nmcli", named=True),
    Command("wpa_passphrase", words=(1,), stdin=_ALWAYS),
    Command("lftp", options=(Option(("-u", "--user"), after=","),)),
)  # fmt: skip

#: Programs that print their arguments: before a pipe into a secret's standard input.
PRINTERS = frozenset({"echo", "printf"})
#: ``set NAME value``, ``git config NAME value``: the name decides.
SETTERS = frozenset({"set", "config", "setenv", "setx"})
