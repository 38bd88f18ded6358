//go:build !linux

package main

import (
	"os"

	"github.com/spf13/cobra"
)

func drainSignals() <-chan os.Signal { return nil }

func forContainers() []*cobra.Command { return nil }
