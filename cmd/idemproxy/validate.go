package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
)

func newValidate() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration and say everything that is wrong with it",
		Long: `Check a configuration as serve would read it, environment variables included, and say
everything that is wrong with it, each with its place. What is allowed and yet probably not
meant is a warning, and changes no exit code. Nothing is opened or changed.

Exit codes: 0 right, 1 the file can't be read, 2 something is wrong with it.`,
		Example: "  idemproxy validate configs/payments.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: running(func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if s.file != "" {
					return usageError{errors.New("name the file once, as an argument or by --config")}
				}
				s.file = args[0]
			}
			return validate(cmd, s.path())
		}),
	}
	s.addConfig(cmd)
	return cmd
}

func validate(cmd *cobra.Command, file string) error {
	if file == "" {
		return usageError{errors.New("name the file to check")}
	}
	cfg, err := config.Load(config.Sources{File: file})
	if err != nil {
		return err
	}
	for _, warning := range cfg.Warnings(os.LookupEnv) {
		fmt.Fprintln(cmd.ErrOrStderr(), warning.Warning())
	}
	plural := "s"
	if len(cfg.Routes) == 1 {
		plural = ""
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok (%d route%s)\n", file, len(cfg.Routes), plural)
	return err
}
