package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
	"idemproxy/internal/dedup"
)

func newKeysRelease() *cobra.Command {
	var k keysFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Free a key whose outcome is unknown, so that it is executed again",
		Long: `Free a key whose outcome is unknown: the next request with it is executed. Make sure
first that the request was not executed, or may be executed twice.

A key whose request is being executed right now is freed only after a question, or with
--yes: its owner finds its claim lost, and records its answer only if nobody else has the
key by then. A recorded answer is not released; see keys purge.

Exit codes: 0 freed, 1 not freed, 2 wrong command line or configuration.`,
		Example: "  idemproxy keys release -c idemproxy.yaml --route payments --key order-17 -H 'X-Account: a'",
		Args:    cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			cfg, err := k.load()
			if err != nil {
				return err
			}
			id, err := k.id(cfg)
			if err != nil {
				return err
			}
			return k.at(cmd.Context(), cfg, func(d desk) error { return k.release(cmd, d, id, yes) })
		}),
	}
	k.addCommon(cmd)
	k.addKey(cmd)
	k.addRoute(cmd, "`name` of the key's route")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "free it also while its request is being executed, without a question")
	return cmd
}

func (k *keysFlags) release(cmd *cobra.Command, d desk, id dedup.ID, yes bool) error {
	known, err := d.Release(cmd.Context(), id, yes)
	if errors.Is(err, dedup.ErrKeyLive) && canAsk(cmd) {
		if !ask(cmd, "A request with this key is being executed: %s.\nIf you free it, the next one is executed beside it. Free it?", summary(known)) {
			return errNotAgreed
		}
		known, err = d.Release(cmd.Context(), id, true)
	}
	switch {
	case errors.Is(err, dedup.ErrKeyLive):
		return fmt.Errorf("%w: %s; --yes frees it all the same", err, summary(known))
	case errors.Is(err, dedup.ErrKeyCompleted):
		return fmt.Errorf("%w: %s; `idemproxy keys purge --hash %s` removes it", err, summary(known), id)
	}
	return k.freed(cmd, "released", known, err)
}

// freed says what was freed.
func (k *keysFlags) freed(cmd *cobra.Command, verb string, known dedup.Known, err error) error {
	if err != nil && !errors.Is(err, dedup.ErrUntold) {
		return err
	}
	if k.json {
		return errors.Join(err, printJSON(cmd.OutOrStdout(), known))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", verb, summary(known))
	return err
}

var errNotAgreed = errors.New("nothing was changed")

func newKeysPurge() *cobra.Command {
	var k keysFlags
	var f filterFlags
	var all, yes bool
	states := []dedup.KeyState{dedup.KeyUnknown, dedup.KeyCompleted, dedup.KeyUnreadable}
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove recorded answers and unknown outcomes before their time",
		Long: `Remove recorded answers and unknown outcomes before their time, of one key or of all
that are meant: the next request with such a key is executed. (What has expired goes by
itself.) Keys whose requests are being executed stay.

It asks first; without a terminal it needs --yes.`,
		Example: `  idemproxy keys purge -c idemproxy.yaml --state unknown --route payments --older-than 48h
  idemproxy keys purge -c idemproxy.yaml --route payments --key order-17 -H 'X-Account: a'`,
		Args: cobra.NoArgs,
		RunE: running(func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(k.route, states...)
			if err != nil {
				return err
			}
			one := k.key != "" || k.hash != ""
			switch {
			case one && (all || f.state != "" || f.olderThan != 0):
				return usageError{errors.New("name one key, or say which are meant, not both")}
			case !one && !all && filter == (dedup.Filter{}):
				return usageError{errors.New("say what to remove: a key, --state, --route, --older-than, or --all")}
			case !yes && !canAsk(cmd):
				return usageError{errors.New("there is no terminal to ask on: --yes says that you mean it")}
			}
			cfg, err := k.load()
			if err != nil {
				return err
			}
			return k.at(cmd.Context(), cfg, func(d desk) error {
				if one {
					return k.remove(cmd, d, cfg, yes)
				}
				return k.purge(cmd, d, filter, yes)
			})
		}),
	}
	k.addCommon(cmd)
	k.addKey(cmd)
	k.addRoute(cmd, "only keys of the route of this `name`; with --key, the key's route")
	f.add(cmd, states...)
	cmd.Flags().BoolVar(&all, "all", false, "remove all there are")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

// purge removes what is meant, page by page.
func (k *keysFlags) purge(cmd *cobra.Command, d desk, f dedup.Filter, yes bool) error {
	if !yes && !ask(cmd, "Remove %s? Their next requests are executed.", meant(f)) {
		return errNotAgreed
	}
	progress := newProgress(cmd.ErrOrStderr())
	var done dedup.Purged
	var err error
	for cursor := ""; ; {
		var page dedup.Purged
		page, err = d.Purge(cmd.Context(), f, cursor, keysAtOnce)
		done.Removed, done.Looked = done.Removed+page.Removed, done.Looked+page.Looked
		progress.say("%d keys looked at, %d removed", done.Looked, done.Removed)
		if cursor = page.Next; err != nil || cursor == "" {
			break
		}
	}
	progress.clear()
	if k.json {
		return errors.Join(err, printJSON(cmd.OutOrStdout(), done))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "purged %d keys (of %d looked at)\n", done.Removed, done.Looked)
	return err
}

// meant is a filter in words.
func meant(f dedup.Filter) string {
	words := []string{"all recorded answers and unknown outcomes"}
	switch f.State {
	case "":
	case dedup.KeyUnknown:
		words[0] = "all unknown outcomes"
	default:
		words[0] = "all answers that are " + string(f.State)
	}
	if f.Route != "" {
		words = append(words, "of the route "+plain(f.Route))
	}
	if f.OlderThan > 0 {
		words = append(words, "older than "+f.OlderThan.String())
	}
	return strings.Join(words, " ")
}

// remove removes what is under one key.
func (k *keysFlags) remove(cmd *cobra.Command, d desk, cfg *config.Config, yes bool) error {
	id, err := k.id(cfg)
	if err != nil {
		return err
	}
	if !yes {
		known, err := d.Show(cmd.Context(), id, false)
		if err != nil {
			return err
		}
		if known.State != dedup.KeyFree && !ask(cmd, "Remove %s? Its next request is executed.", summary(known)) {
			return errNotAgreed
		}
	}
	known, err := d.Remove(cmd.Context(), id)
	if errors.Is(err, dedup.ErrKeyLive) {
		return fmt.Errorf("%w: %s; see `idemproxy keys release`", err, summary(known))
	}
	return k.freed(cmd, "purged", known, err)
}
