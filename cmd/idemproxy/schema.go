package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
	"idemproxy/internal/store"
)

func newSchema() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the schema of the configuration, or of a store's database",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSchemaConfig(), newSchemaPostgres())
	return cmd
}

func newSchemaConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: `Print the JSON Schema of the configuration. An editor with a YAML language server uses it
when the first line of a file names it:

  # yaml-language-server: $schema=idemproxy.schema.json`,
		Example: "  idemproxy schema config >idemproxy.schema.json",
		Args:    cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		}),
	}
}

func newSchemaPostgres() *cobra.Command {
	cfg := store.DefaultConfig()
	cfg.Type, cfg.Postgres.URL = "postgres", "postgres://" // only the table's name counts here
	cmd := &cobra.Command{
		Use:   "postgres",
		Short: "Print the SQL that makes the table of the PostgreSQL store",
		Long: `Print the SQL that makes the table of the PostgreSQL store, for databases in which the
proxy may not make tables itself (store.postgres.auto_migrate: false). It may be run
again, also after an update of the proxy: nothing is dropped.`,
		Example: "  idemproxy schema postgres | psql",
		Args:    cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			for _, f := range cfg.Validate() {
				return usageError{fmt.Errorf("--table: %s", f.Message)}
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), store.Schema(cfg.Postgres.Table))
			return err
		}),
	}
	cmd.Flags().StringVar(&cfg.Postgres.Table, "table", cfg.Postgres.Table, "name of the table, or schema.name")
	return cmd
}
