package store

import (
	"fmt"
	"net"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"idemproxy/internal/dedup"
)

// Validate returns everything that is wrong with the section, paths relative to it, such
// as "redis.url". It opens no file and no connection, and no message holds a secret.
func (c Config) Validate() []dedup.Fault {
	var f faults
	if _, known := constructors()[c.Type]; !known {
		f.add("type", "unknown store: use %s", orList(Types()))
	}
	if c.Timeout < time.Millisecond {
		f.add("timeout", "must be at least 1ms")
	}
	if i := strings.IndexFunc(c.KeyPrefix, func(r rune) bool { return r < 0x21 || r > 0x7e }); i >= 0 || c.KeyPrefix == "" {
		f.add("key_prefix", "must be printable ASCII without spaces, and not empty")
	}
	f.addAll("memory.", c.Memory.validate())
	f.addAll("redis.", c.Redis.validate())
	f.addAll("file.", c.File.validate())
	f.addAll("postgres.", c.Postgres.validate(c.Type == "postgres"))
	f.addAll("encryption.", c.Encryption.validate())
	if c.CompressAbove < 0 {
		f.add("compress_above", "must not be negative; 0 means no compression")
	}
	return append(f, c.validateUnused()...)
}

// validateUnused finds the settings of stores that are not in use.
func (c Config) validateUnused() []dedup.Fault {
	var f faults
	byDefault := DefaultConfig()
	for _, section := range []struct {
		name string
		same bool
	}{
		{"memory", c.Memory == byDefault.Memory},
		{"file", c.File == byDefault.File},
		{"redis", reflect.DeepEqual(c.Redis, byDefault.Redis)},
		{"postgres", c.Postgres == byDefault.Postgres},
	} {
		if _, known := constructors()[c.Type]; known && section.name != c.Type && !section.same {
			f.add(section.name, "has no effect while type is %s: set type: %s, or leave this out", c.Type, section.name)
		}
	}
	return f
}

func (c FileConfig) validate() []dedup.Fault {
	var f faults
	if c.Path == "" || strings.ContainsRune(c.Path, 0) {
		f.add("path", "must be the path of a file")
	}
	if c.MaxSize < 0 || c.MaxSize > 0 && c.MaxSize < dedup.MiB {
		f.add("max_size", "must be at least 1MiB, or 0 for no bound but the disk's")
	}
	return f
}

func (c MemoryConfig) validate() []dedup.Fault {
	var f faults
	if c.MaxEntries <= 0 {
		f.add("max_entries", "must be more than 0")
	}
	if c.MaxBytes <= 0 {
		f.add("max_bytes", "must be more than 0")
	}
	if c.CleanupInterval <= 0 {
		f.add("cleanup_interval", "must be more than 0")
	}
	return f
}

func (c RedisConfig) validate() []dedup.Fault {
	var f faults
	f = append(f, c.validateWhere()...)
	f = append(f, c.validateLogin()...)
	f.addAll("tls.", c.TLS.validate())
	if c.PoolSize < 0 {
		f.add("pool_size", "must not be negative; 0 means %d", DefaultPoolSize)
	}
	if c.WaitReplicas < 0 {
		f.add("wait_replicas", "must not be negative")
	}
	return f
}

// validateWhere checks the fields that say where Redis is.
func (c RedisConfig) validateWhere() []dedup.Fault {
	var f faults
	if c.URL != "" && c.URLFile != "" {
		f.add("url_file", "contradicts url: set one of them")
	}
	if c.URL != "" {
		if u, err := parseRedisURL(c.URL); err != nil {
			f.add("url", "%s", err)
		} else if u.Network == "unix" && c.TLS.enabled() {
			f.add("tls", "has no effect on a Unix socket")
		}
	}
	if len(c.Addresses) > 0 && (c.URL != "" || c.URLFile != "") {
		f.add("addresses", "contradicts url: set one of them")
	}
	for i, a := range c.Addresses {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			f.add(fmt.Sprintf("addresses[%d]", i), "must be host:port")
		}
	}
	if c.MasterName != "" && len(c.Addresses) == 0 {
		f.add("master_name", "needs addresses, those of the Sentinels")
	}
	return f
}

// validateLogin checks user name and password.
func (c RedisConfig) validateLogin() []dedup.Fault {
	var f faults
	if c.Password != "" && c.PasswordFile != "" {
		f.add("password_file", "contradicts password: set one of them")
	}
	hasPassword := c.Password != "" || c.PasswordFile != ""
	if c.Username != "" && !hasPassword {
		f.add("username", "has no effect without password or password_file")
	}
	if c.URL == "" {
		return f
	}
	if u, err := parseRedisURL(c.URL); err == nil && (u.Username != "" || u.Password != "") && hasPassword {
		f.add("url", "holds a user or password, and username, password or password_file too: set one of them")
	}
	return f
}

func (c TLSConfig) validate() []dedup.Fault {
	var f faults
	if (c.CertFile == "") != (c.KeyFile == "") {
		f.add("cert_file", "cert_file and key_file must be set together")
	}
	if c.InsecureSkipVerify && c.CAFile != "" {
		f.add("ca_file", "has no effect with insecure_skip_verify")
	}
	return f
}

// parseRedisURL reads a Redis URL. Its errors hold nothing of it, since it may hold a
// password.
func parseRedisURL(s Secret) (*redis.Options, error) {
	u, err := url.Parse(s.Reveal())
	if err != nil {
		return nil, errBadRedisURL()
	}
	for name := range u.Query() {
		if name != "db" {
			return nil, fmt.Errorf("query parameters are not supported, but for db on a Unix socket: use the settings beside url")
		}
	}
	opts, err := redis.ParseURL(s.Reveal())
	if err != nil {
		return nil, errBadRedisURL()
	}
	return opts, nil
}

func errBadRedisURL() error {
	return fmt.Errorf("not a Redis URL: use redis://[user[:password]@]host[:port][/db], rediss:// for TLS, or unix:///path/to.sock")
}

// orList joins names: a, b or c.
func orList(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// faults collects what is wrong.
type faults []dedup.Fault

func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, dedup.Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (f *faults) addAll(prefix string, more []dedup.Fault) {
	for _, m := range more {
		*f = append(*f, dedup.Fault{Path: prefix + m.Path, Message: m.Message})
	}
}
