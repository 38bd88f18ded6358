#!/usr/bin/env bash
# Checks the alerts of deploy/prometheus and runs their tests, and reads each query of the
# dashboard in deploy/grafana, with promtool (from scripts/services.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

services=$(scripts/services.sh)
[ -z "$services" ] || export PATH="$services:$PATH"

promtool check rules --lint-fatal deploy/prometheus/rules.yaml internal/metrics/testdata/dashboard_queries.yaml
promtool test rules deploy/prometheus/rules_test.yaml
