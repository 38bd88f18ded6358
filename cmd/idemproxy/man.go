//go:build !noman

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// forPackagers are the commands of who packages the program. What writes manual pages is a
// hundredth of the binary, so that releases leave it out.
func forPackagers() []*cobra.Command { return []*cobra.Command{newMan()} }

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages",
		Long:    `Write a manual page for each command into a folder, which is made if it is not there.`,
		Example: "  idemproxy man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE: running(func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manuals are for everybody
				return fmt.Errorf("make folder: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the day on which they were made would make each build differ
			header := &doc.GenManHeader{Section: "1", Source: "idemproxy " + versionText(), Manual: "idemproxy"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return nil
		}),
	}
}
