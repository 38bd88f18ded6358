package store

import (
	"time"

	"idemproxy/internal/dedup"
)

// Config is the `store` section of the configuration: which store keeps the claims and
// records, and where. Only the section named by Type counts.
type Config struct {
	// Type says where they are kept.
	Type string `yaml:"type"`
	// KeyPrefix begins every key in a store that is shared with other programs.
	KeyPrefix string `yaml:"key_prefix"`
	// Timeout bounds one store operation, everything included: waiting for a connection,
	// dialling, repeating. An operation may end a little later, never much.
	Timeout time.Duration `yaml:"timeout"`
	// CompressAbove compresses notes and records larger than this; 0 means none.
	CompressAbove dedup.Size `yaml:"compress_above"`
	// Memory bounds the store inside the process: full, it refuses new claims.
	Memory MemoryConfig `yaml:"memory"`
	// File is the store of one machine, on its disk.
	File FileConfig `yaml:"file"`
	// Redis is where Redis is: url (or url_file) for one server, addresses for a Cluster,
	// addresses and master_name for Sentinel; with none of them redis://127.0.0.1:6379/0.
	Redis RedisConfig `yaml:"redis"`
	// Postgres is where PostgreSQL is, and how it is used.
	Postgres PostgresConfig `yaml:"postgres"`
	// Encryption encrypts notes and records, in every store.
	Encryption EncryptionConfig `yaml:"encryption"`
}

// FileConfig says which file the store of one machine is.
type FileConfig struct {
	// Path is the file. One process can have it open at a time.
	Path string `yaml:"path"`
	// MaxSize is how large the file may become before new claims are refused; what is
	// claimed may end beyond it. 0 means as large as the disk.
	MaxSize dedup.Size `yaml:"max_size"`
}

// PostgresConfig says where PostgreSQL is and how to use it.
type PostgresConfig struct {
	// URL is postgres://[user[:password]@]host[:port]/database[?sslmode=…], with libpq's
	// parameters.
	URL Secret `yaml:"url"`
	// URLFile is a file with the URL, read when the store is opened; its user and password
	// are read again for every new connection.
	URLFile string `yaml:"url_file"`
	// Table is the name of the table, or schema.table.
	Table string `yaml:"table"`
	// AutoMigrate makes the table, and brings that of an older version up to date, before
	// it is used for the first time. Nothing is ever dropped.
	AutoMigrate bool `yaml:"auto_migrate"`
	// PurgeInterval is the time between two removals of what has expired.
	PurgeInterval time.Duration `yaml:"purge_interval"`
	// MaxConns is the most connections to the server.
	MaxConns int `yaml:"max_conns"`
}

// EncryptionConfig is the keys that notes and records are encrypted with, by AES-256-GCM.
// The first key encrypts, all of them decrypt. Without keys nothing is encrypted.
type EncryptionConfig struct {
	// Keys are the ring: the first encrypts, all decrypt; none means no encryption.
	Keys []EncryptionKey `yaml:"keys"`
}

// EncryptionKey is one key of the ring: 32 bytes as base64 or hexadecimal digits, in the
// configuration or in a file; a file may also hold the bare bytes.
type EncryptionKey struct {
	// ID names the key in what it encrypts. It stays the key's for ever.
	ID string `yaml:"id"`
	// Key is 32 bytes as base64 or hexadecimal digits.
	Key Secret `yaml:"key"`
	// KeyFile is a file with the key, or with the bare 32 bytes.
	KeyFile string `yaml:"key_file"`
}

// MemoryConfig bounds the store inside the process. When it is full, new claims are
// refused; what is alive is never evicted.
type MemoryConfig struct {
	// MaxEntries is the most claims and records that may live at a time.
	MaxEntries int `yaml:"max_entries"`
	// MaxBytes is the most memory they may use: keys, bytes, and 256 bytes for each.
	MaxBytes dedup.Size `yaml:"max_bytes"`
	// CleanupInterval is the time between two removals of what has expired. Room that is
	// needed earlier is taken from expired entries at once.
	CleanupInterval time.Duration `yaml:"cleanup_interval"`
}

// RedisConfig says where Redis is and how to talk to it. URL (or URLFile) names a single
// server; Addresses names several of a Cluster, one single server, or, with MasterName,
// the Sentinels. With none of them it is DefaultRedisURL.
type RedisConfig struct {
	// URL is redis://[user[:password]@]host[:port][/db], rediss://… for TLS, or
	// unix://[user[:password]@]/path/to.sock[?db=N].
	URL Secret `yaml:"url"`
	// URLFile is a file with the URL, read when the store is opened.
	URLFile string `yaml:"url_file"`
	// Addresses are the servers of a Cluster, one server, or, with master_name, Sentinels:
	// host:port, each.
	Addresses []string `yaml:"addresses"`
	// MasterName makes the addresses those of Sentinels that know this master.
	MasterName string `yaml:"master_name"`
	// Username is for servers with ACLs; not beside a url with a user.
	Username string `yaml:"username"`
	// Password belongs to username; give it here, in password_file or in the url.
	Password Secret `yaml:"password"`
	// PasswordFile is a file with the password, read again for every new connection, so
	// that a rotated password needs no restart.
	PasswordFile string `yaml:"password_file"`
	// TLS is on with rediss:// or when anything is set here.
	TLS TLSConfig `yaml:"tls"`
	// PoolSize is the most connections to one server; 0 means 64.
	PoolSize int `yaml:"pool_size"`
	// WaitReplicas is how many replicas must have a claim before it counts. It narrows the
	// window in which a failover loses an acknowledged claim; it does not close it.
	WaitReplicas int `yaml:"wait_replicas"`
	// RequireNoeviction keeps the program from starting, and from being ready, unless the eviction
	// policy of every master is known to be noeviction: every other policy may evict
	// claims, and an evicted claim is a double execution.
	RequireNoeviction bool `yaml:"require_noeviction"`
}

// TLSConfig is TLS towards Redis. It is on with a rediss:// URL or when any field is set.
type TLSConfig struct {
	// CAFile is a file with the certificates to trust instead of the system's, in PEM.
	CAFile string `yaml:"ca_file"`
	// CertFile is the client's certificate in PEM, read again for every new connection.
	CertFile string `yaml:"cert_file"`
	// KeyFile is its key.
	KeyFile string `yaml:"key_file"`
	// InsecureSkipVerify accepts every certificate.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
	// ServerName is the name to expect in the certificate instead of the host dialled.
	ServerName string `yaml:"server_name"`
}

// Defaults of the Redis store.
const (
	// DefaultRedisURL is where Redis is if nothing says where.
	DefaultRedisURL = "redis://127.0.0.1:6379/0"
	// DefaultPoolSize is the most connections to one server if PoolSize is 0.
	DefaultPoolSize = 64
)

// DefaultConfig is the store section of an empty configuration.
func DefaultConfig() Config {
	return Config{
		Type:      "memory",
		KeyPrefix: "idem:",
		Timeout:   500 * time.Millisecond,
		Memory: MemoryConfig{
			MaxEntries:      200_000,
			MaxBytes:        256 * dedup.MiB,
			CleanupInterval: 60 * time.Second,
		},
		File: FileConfig{Path: "/var/lib/idemproxy/idemproxy.db"},
		Postgres: PostgresConfig{
			Table:         "idempotency_keys",
			AutoMigrate:   true,
			PurgeInterval: time.Minute,
			MaxConns:      10,
		},
	}
}

// enabled reports whether any field asks for TLS.
func (c TLSConfig) enabled() bool { return c != TLSConfig{} }
