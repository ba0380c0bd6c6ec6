#!/usr/bin/env python3
"""scripts/prometheus: the alert rules and Grafana's dashboard, with a running testrpc at either end; where Debian's
package prometheus is installed, by a Prometheus."""
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import testrpc_harness as harness

TEST = Path(__file__).resolve().parents[1]
FOLDER = TEST.parent / "scripts/prometheus"
RULES = FOLDER / "rrdk-alerts.yml"
DASHBOARD = json.loads((FOLDER / "rrdk-dashboard.json").read_text(encoding="utf-8"))
MISSING = "{} is not installed (Debian's package prometheus)"
# The panels that show nothing while all is well between a server and a client.
QUIET = {"Refused messages, by reason", "refusals_total"}


def expressions():
    """(title, expression) of what each panel asks, as Grafana would."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "10s").replace("$instance", ".*")


def examples():
    """The questions in the documentation."""
    text = (TEST.parent / "doc/telemetry.md").read_text(encoding="utf-8")
    section = re.search(r"^## Prometheus and Grafana$(.*?)^## ", text, re.M | re.S)[1]
    queries = section.split("```\n")[-2]
    return [(line, line) for line in queries.splitlines() if line and not line.startswith("#")]


class Prometheus(harness.Case):
    def ends(self):
        """Where the metrics of a server and of a client are."""
        server = self.start("--server", self.uri, "--metrics", "0", "--idle", "adaptive", "--stages", "1")
        served = server.wait_for_line("metrics at").split()[-1]
        server.wait_for_line("listening on")
        client = self.start("--client", self.uri, "--engine", "echo", "--rate", "200", "--duration", "300", "--metrics", "0",
                            "--stages", "1", "--idle", "adaptive")
        made = client.wait_for_line("metrics at").split()[-1]
        client.wait_for_line(" s ")
        return served, made

    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(MISSING.format(program))

    def promtool(self, *arguments):
        done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False,
                              timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_metrics_of_rules_and_dashboard_are_there(self):
        names = set()
        for url in self.ends():
            with urllib.request.urlopen(url, timeout=harness.PATIENCE) as answer:
                names.update(re.findall(r"^(\w+)[{ ]", answer.read().decode(), re.M))
        rules = RULES.read_text(encoding="utf-8")
        asked = "".join(line for line in rules.splitlines(True) if "description:" not in line and not line.startswith("#"))
        asked += "".join(expression for _, expression in expressions())
        for pattern in re.findall(r'__name__=~"([^"]*)"', asked):
            self.assertTrue(any(re.fullmatch(pattern, name) for name in names), pattern)
        found = set(re.findall(r"\brrdk_\w+", re.sub(r'__name__=~"[^"]*"', "", asked)))
        self.assertGreater(len(found), 30)
        self.assertEqual(found - names, set())

    def test_panels_lie_side_by_side(self):
        taken = set()
        for panel in DASHBOARD["panels"]:
            at = panel["gridPos"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            taken |= cells
        numbers = [panel["id"] for panel in DASHBOARD["panels"]]
        self.assertEqual(len(set(numbers)), len(numbers))

    def test_alerts_come_when_they_should(self):
        self.need("promtool")
        self.promtool("check", "rules", RULES)
        number = RULES.read_text(encoding="utf-8").count("- alert:")
        text = (TEST / "data/prometheus-alerts.yml").read_text(encoding="utf-8")
        made = Path(self.folder, "test.yml")
        made.write_text(text.replace("RULES", str(RULES)).replace("NUMBER", str(number)), encoding="utf-8")
        self.promtool("test", "rules", made)

    def start_prometheus(self, targets):
        config = Path(self.folder, "prometheus.yml")
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "rrdk", "static_configs": [{"targets": targets}]}]}), encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        started = self.start(f"--config.file={config}", f"--storage.tsdb.path={self.folder}/data",
                             f"--web.listen-address=127.0.0.1:{port}", program="prometheus")
        started.wait_for_line("Server is ready to receive web requests")
        return f"http://127.0.0.1:{port}/api/v1/"

    def get(self, url):
        try:
            with urllib.request.urlopen(url, timeout=harness.PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def query(self, api, expression):
        answer = self.get(api + "query?" + urllib.parse.urlencode({"query": expression}))
        self.assertEqual(answer["status"], "success", f"{expression}: {answer.get('error')}")
        return answer["data"]["result"]

    def test_a_prometheus_shows_what_the_dashboard_asks(self):
        self.need("prometheus")
        targets = [url.split("/")[2] for url in self.ends()]
        api = self.start_prometheus(targets)
        unanswered = [("both are up", "count(up == 1) == 2"), *expressions(), *examples()]
        end = time.monotonic() + harness.PATIENCE
        while unanswered and time.monotonic() < end:  # rates need some scrapes
            unanswered = [(title, expression) for title, expression in unanswered
                          if not self.query(api, expression) and not any(words in title for words in QUIET)]
        scraped = self.get(api + "targets")["data"]["activeTargets"]
        self.assertEqual(unanswered, [], [target["lastError"] for target in scraped])
        rules = self.get(api + "rules")["data"]["groups"][0]["rules"]
        self.assertEqual([rule["lastError"] for rule in rules if rule["health"] == "err"], [])
        self.assertEqual([rule["name"] for rule in rules if rule["state"] == "firing"], [])


if __name__ == "__main__":
    harness.main()
