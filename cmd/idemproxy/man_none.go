//go:build noman

package main

import "github.com/spf13/cobra"

func forPackagers() []*cobra.Command { return nil }
