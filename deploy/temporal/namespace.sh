#!/bin/sh
# Makes the fleets' namespace and the search attributes the plane writes, before any worker starts: a worker that met an
# unregistered one would wedge its workflow. Runs at every `up`: what is there already is left alone.
# Connection: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE.
set -eu

within_a_minute() { # a command, tried each second until it succeeds
  tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || return 1
    sleep 1
  done
}

within_a_minute temporal operator cluster health
if ! temporal operator namespace describe >/dev/null 2>&1; then
  temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention 7d
fi
# The server's own caches learn of a new namespace only after some seconds.
within_a_minute temporal operator search-attribute create --name FleetPhase --type Keyword
within_a_minute temporal operator search-attribute create --name FleetGeneration --type Int
within_a_minute temporal operator search-attribute create --name FleetRejected --type Bool
