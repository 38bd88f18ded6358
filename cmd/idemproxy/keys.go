package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/textproto"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"idemproxy/internal/config"
	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
)

// A desk is where an operator looks at keys and frees them: the store, or a running proxy.
type desk interface {
	Show(ctx context.Context, id dedup.ID, response bool) (dedup.Known, error)
	List(ctx context.Context, f dedup.Filter, cursor string, limit int) (dedup.KeyPage, error)
	Release(ctx context.Context, id dedup.ID, force bool) (dedup.Known, error)
	Remove(ctx context.Context, id dedup.ID) (dedup.Known, error)
	Purge(ctx context.Context, f dedup.Filter, cursor string, limit int) (dedup.Purged, error)
}

func newKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "See which keys are known, and free them by hand",
		Long: `See which keys are known, and free them by hand.

On Redis and PostgreSQL this asks the store that the configuration names. The keys of the
stores memory and file are in the running proxy: it is asked through the control listener
of the configuration (control.listen, control.token_file), or of --control and --token-file.

What is released or purged is written into the store's audit trail, from which every
running proxy logs and counts it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysShow(), newKeysList(), newKeysRelease(), newKeysPurge())
	return cmd
}

// keysFlags are the flags of the commands below `keys`.
type keysFlags struct {
	settings
	control, tokenFile string
	json               bool

	route, key, hash string
	headers          []string
}

func (k *keysFlags) addCommon(cmd *cobra.Command) {
	k.addConfig(cmd)
	cmd.Flags().StringVar(&k.control, "control", "", "`URL` of the running proxy's control listener, to ask it instead of the store")
	cmd.Flags().StringVar(&k.tokenFile, "token-file", "", "`file` with the control listener's token")
	cmd.Flags().BoolVar(&k.json, "json", false, "print JSON")
}

// addKey adds the flags that name one key.
func (k *keysFlags) addKey(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.key, "key", "", "the `key` as the caller sends it; one that the proxy derived is named by --hash")
	cmd.Flags().StringArrayVarP(&k.headers, "header", "H", nil, "a `header` that says who the caller is, as 'Name: value'; may be repeated")
	cmd.Flags().StringVar(&k.hash, "hash", "", "the `key_hash` from a log line, instead of the key")
	cmd.MarkFlagsMutuallyExclusive("key", "hash")
	cmd.MarkFlagsMutuallyExclusive("header", "hash")
}

func (k *keysFlags) addRoute(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&k.route, "route", "", usage)
}

// load reads the configuration, or takes the one of `serve` without a file.
func (k *keysFlags) load() (*config.Config, error) {
	if file := k.path(); file != "" {
		return config.Load(config.Sources{File: file})
	}
	return config.Load(config.Sources{Text: withoutFile})
}

// at opens the desk and does something at it.
func (k *keysFlags) at(ctx context.Context, cfg *config.Config, do func(desk) error) error {
	inProcess := cfg.Store.Type != "redis" && cfg.Store.Type != "postgres"
	if k.control == "" && inProcess && cfg.Control.Listen != "" {
		k.control = reachable(cfg.Control.Listen)
		k.tokenFile = cmp.Or(k.tokenFile, cfg.Control.TokenFile)
	}
	if k.control != "" {
		c, err := newControlClient(k.control, k.tokenFile)
		if err != nil {
			return err
		}
		return do(c)
	}
	if inProcess {
		return usageError{fmt.Errorf("the keys of the store %s are in the running proxy: set control.listen in its configuration (to release and purge also control.token_file), or name its control listener by --control (and --token-file)", cfg.Store.Type)}
	}
	cfg.Store.Timeout = max(cfg.Store.Timeout, 10*time.Second) // no request waits for this
	if cfg.Store.Type == "postgres" {
		cfg.Store.Postgres.AutoMigrate = false // a look makes no tables
	}
	s, err := store.Open(ctx, cfg.Store)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(dedup.Keys{Store: s, By: operator()})
}

// operator is who runs this, for the audit trail.
func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// id is the key that the flags name.
func (k *keysFlags) id(cfg *config.Config) (dedup.ID, error) {
	if k.hash != "" {
		if b, err := base64.RawURLEncoding.DecodeString(k.hash); err != nil || len(b) != 32 {
			return "", usageError{errors.New("--hash: not a key_hash: 43 characters of A-Z a-z 0-9 - _")}
		}
		return dedup.ID(k.hash), nil
	}
	if k.key == "" {
		return "", usageError{errors.New("name the key: --key, with --route and the headers that say who the caller is, or --hash")}
	}
	rule, err := k.rule(cfg)
	if err != nil {
		return "", err
	}
	header := textproto.MIMEHeader{}
	for _, h := range k.headers {
		name, value, err := headerFlag(h)
		if err != nil {
			return "", err
		}
		header.Add(name, value)
	}
	header.Set(rule.HeaderName[0], k.key)
	key, refused := rule.Key(header.Values)
	if refused != nil {
		return "", usageError{fmt.Errorf("--key: %s", refused.Detail)}
	}
	scope, refused := rule.Scope(header.Values, nil)
	if refused != nil {
		return "", usageError{fmt.Errorf("route %s: %s Give it by -H", rule.Name, refused.Detail)}
	}
	return scope.ID(key), nil
}

// rule is the route that the flags name, or the only one there is.
func (k *keysFlags) rule(cfg *config.Config) (*dedup.Rule, error) {
	var names []string
	for i := range cfg.Routes {
		if r := &cfg.Routes[i]; r.Name == k.route || k.route == "" && len(cfg.Routes) == 1 {
			return r, nil
		}
		names = append(names, cfg.Routes[i].Name)
	}
	if k.route == "" {
		return nil, usageError{fmt.Errorf("name the route of the key by --route: %s", strings.Join(names, ", "))}
	}
	return nil, usageError{fmt.Errorf("there is no route of this name: there are %s", strings.Join(names, ", "))}
}

// filterFlags are the flags that say which keys are meant.
type filterFlags struct {
	state     string
	olderThan time.Duration
}

func (f *filterFlags) add(cmd *cobra.Command, states ...dedup.KeyState) {
	var names []string
	for _, s := range states {
		names = append(names, string(s))
	}
	cmd.Flags().StringVar(&f.state, "state", "", "only keys in this `state`: "+strings.Join(names, ", "))
	cmd.Flags().DurationVar(&f.olderThan, "older-than", 0, "only keys claimed or completed longer ago than this, such as 1h")
}

// filter is what the flags mean.
func (f *filterFlags) filter(route string, states ...dedup.KeyState) (dedup.Filter, error) {
	if f.olderThan < 0 {
		return dedup.Filter{}, usageError{errors.New("--older-than: must be more than 0, such as 1h")}
	}
	for _, s := range states {
		if f.state == "" || f.state == string(s) {
			return dedup.Filter{State: dedup.KeyState(f.state), Route: route, OlderThan: f.olderThan}, nil
		}
	}
	return dedup.Filter{}, usageError{fmt.Errorf("--state: must be one of %v", states)}
}
