#!/bin/sh
# Makes Temporal's two databases and brings their schemas up to this image's release. Runs at every `up`, which is how
# an upgrade gets its migrations: what is there already is left alone. Connection: SQL_PLUGIN, SQL_HOST, SQL_PORT,
# SQL_USER, SQL_PASSWORD.
set -eu

migrate() { # database, its folder of migrations
  temporal-sql-tool --database "$1" create-database
  temporal-sql-tool --database "$1" setup-schema --version 0.0
  temporal-sql-tool --database "$1" update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/$2/versioned"
}

migrate temporal temporal
migrate temporal_visibility visibility
