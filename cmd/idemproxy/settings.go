package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"idemproxy/internal/config"
)

// configVariable names the configuration file where no --config does.
const configVariable = "IDEMPROXY_CONFIG"

// withoutFile is the configuration of `serve --upstream URL` alone: every request that
// may change something and carries a key is guarded.
const withoutFile = `routes: [{name: default, path: "/", missing_header: pass-through}]`

// settings are the flags of a command by which it finds its configuration.
type settings struct {
	file  string
	flags map[string]*pflag.Flag
}

// addConfig adds --config.
func (s *settings) addConfig(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.file, "config", "c", "", "configuration `file` (environment: "+configVariable+")")
}

// addOverrides adds the flags that override a setting of the configuration.
func (s *settings) addOverrides(cmd *cobra.Command) {
	s.flags = map[string]*pflag.Flag{}
	add := func(path, flag, usage string) {
		cmd.Flags().String(flag, "", usage)
		s.flags[path] = cmd.Flags().Lookup(flag)
	}
	add("upstream.url", "upstream", "`URL` of the service to protect (upstream.url)")
	add("server.listen", "listen", "`address` for requests (server.listen, default :8080)")
	add("admin.listen", "admin-listen", "`address` for probes and metrics (admin.listen, default :9090, empty for none)")
	add("log.level", "log-level", "`level`: debug, info, warn or error (log.level, default info)")
	add("log.format", "log-format", "`format`: json or console (log.format, default json)")
}

// path is the configuration file, or "".
func (s *settings) path() string {
	if s.file == "" {
		return os.Getenv(configVariable)
	}
	return s.file
}

// load reads the configuration: the file's, or withoutFile over the upstream that flag
// or environment name.
func (s *settings) load() (*config.Config, error) {
	if file := s.path(); file != "" {
		return config.Load(config.Sources{File: file, Flags: s.flags})
	}
	_, named := os.LookupEnv(config.EnvName("upstream.url"))
	if flag := s.flags["upstream.url"]; !named && (flag == nil || !flag.Changed) {
		return nil, usageError{errors.New("nothing says which service to protect: give --config FILE, or --upstream URL")}
	}
	return config.Load(config.Sources{Text: withoutFile, Flags: s.flags})
}
