#!/bin/sh
# Before the package is removed: "remove" is Debian's word for it, 0 is RPM's. Not for an upgrade.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now idemproxy.service
	fi
	;;
esac
