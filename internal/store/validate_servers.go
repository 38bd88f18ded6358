package store

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"idemproxy/internal/dedup"
)

func (c PostgresConfig) validate(used bool) []dedup.Fault {
	var f faults
	switch {
	case c.URL != "" && c.URLFile != "":
		f.add("url_file", "contradicts url: set one of them")
	case c.URL != "" && !isPGURL(c.URL):
		f.add("url", "not a PostgreSQL URL: use postgres://[user[:password]@]host[:port]/database[?sslmode=verify-full]")
	case used && c.URL == "" && c.URLFile == "":
		f.add("url", "is needed, or url_file: postgres://[user[:password]@]host[:port]/database[?sslmode=verify-full]")
	}
	if !isPGTable(c.Table) {
		f.add("table", "must be a name, or schema.name, of at most 48 lower-case letters, digits and _ each, not beginning with a digit")
	}
	if c.PurgeInterval <= 0 {
		f.add("purge_interval", "must be more than 0")
	}
	if c.MaxConns < 1 || c.MaxConns > 10_000 {
		f.add("max_conns", "must be 1 to 10000")
	}
	return f
}

// isPGURL reports whether s is a URL for PostgreSQL.
func isPGURL(s Secret) bool {
	u, err := url.Parse(s.Reveal())
	return err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") && u.Opaque == ""
}

// isPGTable reports whether the name can be that of a table. PostgreSQL cuts names after
// 63 bytes, and the names made from this one are longer.
func isPGTable(name string) bool {
	return regexp.MustCompile(`^([a-z_][a-z0-9_]{0,47}\.)?[a-z_][a-z0-9_]{0,47}$`).MatchString(name)
}

// maxKeyID is the longest id of an encryption key.
const maxKeyID = 64

func (c EncryptionConfig) validate() []dedup.Fault {
	var f faults
	seen := make(map[string]bool)
	for i, k := range c.Keys {
		at := fmt.Sprintf("keys[%d].", i)
		switch {
		case k.ID == "" || len(k.ID) > maxKeyID || strings.IndexFunc(k.ID, func(r rune) bool { return r < 0x21 || r > 0x7e }) >= 0:
			f.add(at+"id", "must be 1 to %d characters of printable ASCII without spaces", maxKeyID)
		case seen[k.ID]:
			f.add(at+"id", "is the id of another key too")
		}
		seen[k.ID] = true
		switch {
		case k.Key != "" && k.KeyFile != "":
			f.add(at+"key_file", "contradicts key: set one of them")
		case k.Key == "" && k.KeyFile == "":
			f.add(at+"key", "is needed, or key_file: 32 bytes as base64 or hexadecimal digits (openssl rand -base64 32)")
		case k.Key != "":
			if _, err := parseKey([]byte(k.Key.Reveal())); err != nil {
				f.add(at+"key", "%s", err)
			}
		}
	}
	return f
}
