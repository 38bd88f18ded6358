package store_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"idemproxy/internal/store"
)

func TestDefaultConfigIsValid(t *testing.T) {
	cfg := store.DefaultConfig()
	if f := cfg.Validate(); f != nil {
		t.Fatalf("faults %v", f)
	}
	cfg.Type = "redis"
	if f := cfg.Validate(); f != nil {
		t.Fatalf("faults of redis %v", f)
	}
}

// onRedis changes a valid Redis configuration.
func onRedis(change func(*store.RedisConfig)) func(*store.Config) {
	return func(c *store.Config) {
		c.Type = "redis"
		change(&c.Redis)
	}
}

// onPostgres changes a valid PostgreSQL configuration.
func onPostgres(change func(*store.PostgresConfig)) func(*store.Config) {
	return func(c *store.Config) {
		c.Type = "postgres"
		change(&c.Postgres)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	const password = "s3cret"
	for name, c := range map[string]struct {
		change func(*store.Config)
		paths  string // of the faults, sorted
	}{
		"unknown type":       {func(c *store.Config) { c.Type = "etcd" }, "type"},
		"no type":            {func(c *store.Config) { c.Type = "" }, "type"},
		"no timeout":         {func(c *store.Config) { c.Timeout = 0 }, "timeout"},
		"negative timeout":   {func(c *store.Config) { c.Timeout = -time.Second }, "timeout"},
		"no prefix":          {func(c *store.Config) { c.KeyPrefix = "" }, "key_prefix"},
		"prefix with space":  {func(c *store.Config) { c.KeyPrefix = "a b" }, "key_prefix"},
		"prefix not ASCII":   {func(c *store.Config) { c.KeyPrefix = "schlüssel:" }, "key_prefix"},
		"no room":            {func(c *store.Config) { c.Memory.MaxEntries, c.Memory.MaxBytes = 0, -1 }, "memory.max_bytes memory.max_entries"},
		"no cleanup":         {func(c *store.Config) { c.Memory.CleanupInterval = 0 }, "memory.cleanup_interval"},
		"redis for memory":   {func(c *store.Config) { c.Redis.URL = "redis://h" }, "redis"},
		"memory for redis":   {func(c *store.Config) { c.Type, c.Memory.MaxEntries = "redis", 5 }, "memory"},
		"two URLs":           {onRedis(func(c *store.RedisConfig) { c.URL, c.URLFile = "redis://h", "/f" }), "redis.url_file"},
		"URL and addresses":  {onRedis(func(c *store.RedisConfig) { c.URL, c.Addresses = "redis://h", []string{"h:1"} }), "redis.addresses"},
		"address, no port":   {onRedis(func(c *store.RedisConfig) { c.Addresses = []string{"h:1", "h"} }), "redis.addresses[1]"},
		"master, no address": {onRedis(func(c *store.RedisConfig) { c.MasterName = "m" }), "redis.master_name"},
		"two passwords":      {onRedis(func(c *store.RedisConfig) { c.Password, c.PasswordFile = password, "/f" }), "redis.password_file"},
		"user, no password":  {onRedis(func(c *store.RedisConfig) { c.Username = "u" }), "redis.username"},
		"password twice": {onRedis(func(c *store.RedisConfig) {
			c.URL, c.Username, c.Password = "redis://u:"+password+"@h", "u", password
		}), "redis.url"},
		"wrong scheme":      {onRedis(func(c *store.RedisConfig) { c.URL = "http://u:" + password + "@h" }), "redis.url"},
		"no URL at all":     {onRedis(func(c *store.RedisConfig) { c.URL = "redis://u:" + password + "@h:port" }), "redis.url"},
		"bad escape":        {onRedis(func(c *store.RedisConfig) { c.URL = "redis://u:" + password + "%zz@h" }), "redis.url"},
		"bad database":      {onRedis(func(c *store.RedisConfig) { c.URL = "redis://u:" + password + "@h/x" }), "redis.url"},
		"URL with settings": {onRedis(func(c *store.RedisConfig) { c.URL = "redis://u:" + password + "@h?max_retries=9" }), "redis.url"},
		"TLS on a socket": {onRedis(func(c *store.RedisConfig) {
			c.URL, c.TLS.InsecureSkipVerify = "unix:///s", true
		}), "redis.tls"},
		"certificate, no key":  {onRedis(func(c *store.RedisConfig) { c.TLS.CertFile = "/c" }), "redis.tls.cert_file"},
		"key, no certificate":  {onRedis(func(c *store.RedisConfig) { c.TLS.KeyFile = "/k" }), "redis.tls.cert_file"},
		"CA that is not asked": {onRedis(func(c *store.RedisConfig) { c.TLS.CAFile, c.TLS.InsecureSkipVerify = "/c", true }), "redis.tls.ca_file"},
		"negative numbers":     {onRedis(func(c *store.RedisConfig) { c.PoolSize, c.WaitReplicas = -1, -1 }), "redis.pool_size redis.wait_replicas"},
		"all good": {onRedis(func(c *store.RedisConfig) {
			c.Addresses, c.MasterName, c.Username, c.Password = []string{"a:1", "[::1]:2"}, "m", "u", password
		}), ""},
		"two unused": {func(c *store.Config) {
			c.Type, c.Postgres.MaxConns, c.File.Path = "redis", 5, "/x"
		}, "file postgres"},
		"no path":         {func(c *store.Config) { c.Type, c.File.Path = "file", "" }, "file.path"},
		"tiny file":       {func(c *store.Config) { c.Type, c.File.Path, c.File.MaxSize = "file", "/x", 5 }, "file.max_size"},
		"postgres, empty": {func(c *store.Config) { c.Type = "postgres" }, "postgres.url"},
		"postgres, wrong": {onPostgres(func(c *store.PostgresConfig) {
			c.URL, c.Table, c.PurgeInterval, c.MaxConns = "http://u:"+password+"@h/d", "a;b", 0, 0
		}), "postgres.max_conns postgres.purge_interval postgres.table postgres.url"},
		"postgres, bad port":  {onPostgres(func(c *store.PostgresConfig) { c.URL = "postgres://u:" + password + "@h:port/d" }), "postgres.url"},
		"postgres, two URLs":  {onPostgres(func(c *store.PostgresConfig) { c.URL, c.URLFile = "postgres://h/d", "/f" }), "postgres.url_file"},
		"postgres, all good":  {onPostgres(func(c *store.PostgresConfig) { c.URL, c.Table = "postgres://u:"+password+"@h/d", "s.t_1" }), ""},
		"compress below zero": {func(c *store.Config) { c.CompressAbove = -1 }, "compress_above"},
		"keys, wrong": {func(c *store.Config) {
			good := store.Secret(strings.Repeat("ab", 32))
			c.Encryption.Keys = []store.EncryptionKey{
				{ID: "a", Key: good}, {ID: "a", Key: good}, {ID: "b"}, {ID: "c", Key: password}, {ID: "d", Key: good, KeyFile: "/f"}, {ID: "e e", Key: good},
			}
		}, "encryption.keys[1].id encryption.keys[2].key encryption.keys[3].key encryption.keys[4].key_file encryption.keys[5].id"},
		"socket with database": {onRedis(func(c *store.RedisConfig) { c.URL = "unix:///s?db=2" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := store.DefaultConfig()
			c.change(&cfg)
			var paths []string
			for _, f := range cfg.Validate() {
				paths = append(paths, f.Path)
				if strings.Contains(f.Message, password) || f.Message == "" {
					t.Errorf("message %q", f.Message)
				}
			}
			slices.Sort(paths)
			if got := strings.Join(paths, " "); got != c.paths {
				t.Fatalf("faults at %q, want %q", got, c.paths)
			}
			if _, err := store.Open(t.Context(), cfg); (err != nil) != (c.paths != "") {
				t.Fatalf("Open: error %v", err)
			} else if err != nil && strings.Contains(err.Error(), password) {
				t.Fatalf("Open gives the password away: %v", err)
			}
		})
	}
	cfg := store.DefaultConfig()
	cfg.Type = "etcd"
	if f := cfg.Validate(); !strings.Contains(f[0].Message, "file, memory, postgres or redis") {
		t.Fatalf("message %q does not name what there is", f[0].Message)
	}
}

func TestOpenFailsForFilesItCanNotRead(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	junk := writeFile(t, filepath.Join(dir, "junk"), "redis://u:s3cret@h:port")
	for name, change := range map[string]func(*store.RedisConfig){
		"url_file missing":      func(c *store.RedisConfig) { c.URLFile = missing },
		"url_file without URL":  func(c *store.RedisConfig) { c.URLFile = junk },
		"password_file missing": func(c *store.RedisConfig) { c.PasswordFile = missing },
		"ca_file missing":       func(c *store.RedisConfig) { c.TLS.CAFile = missing },
		"ca_file without any":   func(c *store.RedisConfig) { c.TLS.CAFile = junk },
		"cert_file missing":     func(c *store.RedisConfig) { c.TLS.CertFile, c.TLS.KeyFile = missing, missing },
	} {
		cfg := store.DefaultConfig()
		onRedis(change)(&cfg)
		_, err := store.Open(t.Context(), cfg)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	const secret = "redis://u:hunter2@h"
	cfg := store.DefaultConfig().Redis
	cfg.URL, cfg.Password = secret, secret
	asJSON, err := json.Marshal(cfg)
	must(t, err)
	asYAML, err := yaml.Marshal(cfg)
	must(t, err)
	printed := []string{string(asJSON), string(asYAML)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%.3s", "%t"} {
		printed = append(printed, fmt.Sprintf(verb, cfg), fmt.Sprintf(verb, cfg.URL), fmt.Sprintf(verb, &cfg))
	}
	for _, p := range printed {
		if strings.Contains(p, "hunter2") || strings.Contains(p, fmt.Sprintf("%x", "hunter2")) || !strings.Contains(p, "[hidden]") {
			t.Errorf("printed %q", p)
		}
	}
	if cfg.URL.Reveal() != secret {
		t.Errorf("revealed %q", cfg.URL.Reveal())
	}
	if empty := fmt.Sprintf("%v%s", store.Secret(""), store.Secret("")); empty != "" {
		t.Errorf("an empty secret prints %q", empty)
	}
	var back store.RedisConfig
	must(t, yaml.UnmarshalWithOptions([]byte("url: "+secret), &back, yaml.Strict()))
	if back.URL != secret {
		t.Errorf("read %q", back.URL.Reveal())
	}
}
