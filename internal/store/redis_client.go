package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newRedisClient makes the client that the configuration describes: of a Sentinel group
// if it names a master, of a Cluster if it has several addresses, else of one server.
func newRedisClient(cfg Config) (redis.UniversalClient, error) {
	opts, err := redisOptions(cfg)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(&logging.VoidLogger{}) // it would write to stderr what it returns as errors too
	switch {
	case cfg.Redis.MasterName != "":
		return redis.NewFailoverClient(opts.Failover()), nil
	case len(cfg.Redis.Addresses) > 1:
		cluster := opts.Cluster()
		cluster.MaxRetries = 0 // means none within a node here, and -1 would also stop following MOVED
		return redis.NewClusterClient(cluster), nil
	default:
		return redis.NewClient(opts.Simple()), nil
	}
}

// redisOptions sets everything but where Redis is and who we are. go-redis must be told
// to obey deadlines, to send a command once, and to leave its timeouts alone when a
// server announces maintenance.
func redisOptions(cfg Config) (*redis.UniversalOptions, error) {
	opts := &redis.UniversalOptions{
		ContextTimeoutEnabled:    true,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              max(cfg.Timeout/2, time.Millisecond),
		ReadTimeout:              cfg.Timeout,
		WriteTimeout:             cfg.Timeout,
		PoolTimeout:              max(cfg.Timeout/2, time.Millisecond),
		PoolSize:                 cfg.Redis.PoolSize,
		PipelinePoolSize:         -1,
		ConnMaxIdleTime:          5 * time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if opts.PoolSize == 0 {
		opts.PoolSize = DefaultPoolSize
	}
	opts.MinIdleConns = min(2, opts.PoolSize)
	if err := locate(opts, cfg.Redis); err != nil {
		return nil, err
	}
	if err := identify(opts, cfg.Redis); err != nil {
		return nil, err
	}
	if err := secure(opts, cfg.Redis.TLS); err != nil {
		return nil, err
	}
	dial := redis.NewDialer(opts.Simple())
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, dialError{err}
		}
		return conn, nil
	}
	return opts, nil
}

// locate sets where Redis is, and what the URL says of user, database and TLS.
func locate(opts *redis.UniversalOptions, cfg RedisConfig) error {
	if len(cfg.Addresses) > 0 {
		opts.Addrs, opts.MasterName = cfg.Addresses, cfg.MasterName
		return nil
	}
	address := cfg.URL
	if cfg.URLFile != "" {
		var err error
		if address, err = readSecret(cfg.URLFile); err != nil {
			return fmt.Errorf("read redis.url_file: %w", err)
		}
	}
	if address == "" {
		address = DefaultRedisURL
	}
	parsed, err := parseRedisURL(address)
	if err != nil {
		return fmt.Errorf("read redis url: %w", err)
	}
	opts.Addrs, opts.DB, opts.TLSConfig = []string{parsed.Addr}, parsed.DB, parsed.TLSConfig
	opts.Username, opts.Password = parsed.Username, parsed.Password
	return nil
}

// identify sets user and password. A password in a file is read now, to fail early, and
// again for each connection.
func identify(opts *redis.UniversalOptions, cfg RedisConfig) error {
	switch {
	case cfg.Password != "":
		opts.Username, opts.Password = cfg.Username, cfg.Password.Reveal()
	case cfg.PasswordFile != "":
		if _, err := readSecret(cfg.PasswordFile); err != nil {
			return fmt.Errorf("read redis.password_file: %w", err)
		}
		opts.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := readSecret(cfg.PasswordFile)
			return cfg.Username, password.Reveal(), err
		}
	}
	return nil
}

// secure turns TLS on if the section or the URL asks for it.
func secure(opts *redis.UniversalOptions, cfg TLSConfig) error {
	if !cfg.enabled() && opts.TLSConfig == nil {
		return nil
	}
	t := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         cfg.ServerName, // empty: the host dialled
		InsecureSkipVerify: cfg.InsecureSkipVerify,
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return fmt.Errorf("read redis.tls.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("read redis.tls.ca_file: no certificate in %s", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile); err != nil {
			return fmt.Errorf("read redis.tls.cert_file: %w", err)
		}
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			return &pair, err
		}
	}
	opts.TLSConfig = t
	return nil
}

// readSecret reads a file that holds one secret, without the line end that editors leave.
func readSecret(path string) (Secret, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	s := strings.TrimSuffix(string(b), "\n")
	return Secret(strings.TrimSuffix(s, "\r")), nil
}
