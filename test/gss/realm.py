#!/usr/bin/env python3
"""Runs a program in a Kerberos realm of its own.

  test/gss/realm.py PROGRAM [ARGUMENT...]

The realm has its files in a temporary folder and its KDC on a free port of loopback, and ends with
the program. It needs no root, and touches nothing of the system's Kerberos. There are:

  nfs/localhost    a service; its keys are in the default key table (KRB5_KTNAME)
  other/localhost  a service whose keys are in no table
  alice, bob       users; their keys are in the key table of clients (KRB5_CLIENT_KTNAME). The
                   caches have a ticket of alice, who is the default

KRB5_CONFIG and KRB5CCNAME say where the rest is, and RRDK_TEST_REALM is the realm's name.
"""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

REALM = "RRDK.TEST"
CONFIG = """
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""
KDC_CONFIG = """
[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    max_renewable_life = 7d
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""
START_SECONDS = 30


def free_port():
    """A port of loopback that is free for UDP and TCP at this moment."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp, \
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port = tcp.getsockname()[1]
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def environment(folder, port):
    write(f"{folder}/krb5.conf", CONFIG.format(realm=REALM, port=port))
    write(f"{folder}/kdc.conf", KDC_CONFIG.format(realm=REALM, port=port, folder=folder))
    return dict(os.environ, KRB5_CONFIG=f"{folder}/krb5.conf", KRB5_KDC_PROFILE=f"{folder}/kdc.conf",
                KRB5_KTNAME=f"FILE:{folder}/services", KRB5CCNAME=f"DIR:{folder}/caches",
                KRB5RCACHENAME="none:", RRDK_TEST_REALM=REALM, KRB5_CLIENT_KTNAME=f"FILE:{folder}/users",
                PATH=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def run(command, env, **options):
    """Runs a command of the realm's set-up, and shows its output only if it fails."""
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)
    if done.returncode != 0:
        sys.exit(f"realm.py: '{' '.join(command)}' failed:\n{done.stdout}")


def wait_for(kdc, port):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and kdc.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit("realm.py: the KDC did not start; it is Debian's package krb5-kdc")


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="rrdk-realm-") as folder:
        port = free_port()
        env = environment(folder, port)
        os.mkdir(f"{folder}/caches", 0o700)
        run(["kdb5_util", "create", "-s", "-r", REALM, "-P", "test"], env)
        run(["kadmin.local", "-r", REALM], env, input="\n".join(
            [f"addprinc -randkey {name}" for name in ("nfs/localhost", "other/localhost", "alice", "bob")]
            + [f"ktadd -k {folder}/services nfs/localhost", f"ktadd -k {folder}/users alice bob"]) + "\n")
        with open(f"{folder}/kdc.out", "w", encoding="utf-8") as output:
            kdc = subprocess.Popen(["krb5kdc", "-n", "-r", REALM], env=env, stdout=output, stderr=output)
        try:
            wait_for(kdc, port)
            run(["kinit", "-k", "-t", f"{folder}/users", "alice"], env)
            program = subprocess.Popen(sys.argv[1:], env=env)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, frame: program.send_signal(number))
            status = program.wait()
        finally:
            kdc.terminate()
            kdc.wait()
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
