#!/bin/sh
# After the package is installed or upgraded. It starts nothing: first comes your configuration.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart idemproxy.service # the new program, where the old one runs
fi
