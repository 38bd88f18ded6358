package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
)

// A verdict is what validate --json prints.
type verdict struct {
	File     string    `json:"file"`
	Valid    bool      `json:"valid"`
	Routes   int       `json:"routes"`
	Faults   []finding `json:"faults"`
	Warnings []finding `json:"warnings"`
}

// A finding is one fault or warning. Line and column count from 1, and are left out for
// what the environment says.
type finding struct {
	Source  string `json:"source"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Setting string `json:"setting,omitempty"`
	Message string `json:"message"`
}

func newValidate() *cobra.Command {
	var s settings
	var asJSON, effective bool
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration and say everything that is wrong with it",
		Long: `Check a configuration as serve would read it, environment variables included, and say
everything that is wrong with it, each with its place. What is allowed and yet probably not
meant is a warning, and changes no exit code. Nothing is opened or changed.

Exit codes: 0 right, 1 the file can't be read, 2 something is wrong with it.`,
		Example: `  idemproxy validate configs/payments.yaml
  idemproxy validate --print configs/payments.yaml   # every setting with its value, secrets hidden`,
		Args: cobra.MaximumNArgs(1),
		RunE: running(func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if s.file != "" {
					return usageError{errors.New("name the file once, as an argument or by --config")}
				}
				s.file = args[0]
			}
			file := s.path()
			if file == "" {
				return usageError{errors.New("name the file to check")}
			}
			cfg, err := config.Load(config.Sources{File: file})
			switch {
			case asJSON:
				return validateJSON(cmd.OutOrStdout(), file, cfg, err)
			case err != nil:
				return err
			}
			for _, warning := range cfg.Warnings(os.Environ()) {
				fmt.Fprintln(cmd.ErrOrStderr(), warning.Warning())
			}
			if effective {
				return cfg.Print(cmd.OutOrStdout())
			}
			return saidValid(cmd.OutOrStdout(), file, len(cfg.Routes))
		}),
	}
	s.addConfig(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&effective, "print", false, "print the effective configuration, secrets hidden")
	cmd.MarkFlagsMutuallyExclusive("json", "print")
	return cmd
}

func saidValid(stdout io.Writer, file string, routes int) error {
	plural := "s"
	if routes == 1 {
		plural = ""
	}
	_, err := fmt.Fprintf(stdout, "%s: ok (%d route%s)\n", file, routes, plural)
	return err
}

// validateJSON prints what loading a file came to. Faults make it an error that was told.
func validateJSON(stdout io.Writer, file string, cfg *config.Config, err error) error {
	v := verdict{File: file, Faults: []finding{}, Warnings: []finding{}}
	var wrong *config.Error
	switch {
	case errors.As(err, &wrong):
		v.Faults = findings(wrong.Faults)
		err = toldError{err}
	case err != nil:
		return err
	default:
		v.Valid, v.Routes, v.Warnings = true, len(cfg.Routes), findings(cfg.Warnings(os.Environ()))
	}
	return errors.Join(printJSON(stdout, v), err)
}

func findings(faults []config.Fault) []finding {
	found := make([]finding, len(faults))
	for i, f := range faults {
		found[i] = finding{f.Origin.Source, f.Origin.Line, f.Origin.Column, f.Path, f.Message}
	}
	return found
}
