package proxy

import (
	"time"

	"idemproxy/internal/dedup"
)

// ServerConfig is the listener that callers reach.
type ServerConfig struct {
	// Listen is the address, as host:port.
	Listen string `yaml:"listen"`
	// TLS makes it HTTPS; without, it speaks plain HTTP/1.1 and h2c.
	TLS ServerTLS `yaml:"tls"`
	// ReadHeaderTimeout bounds the time to receive a request's head.
	ReadHeaderTimeout time.Duration `yaml:"read_header_timeout"`
	// BodyTimeout bounds the time to receive the whole body of a guarded request.
	BodyTimeout time.Duration `yaml:"body_timeout"`
	// SendTimeout closes a connection whose caller takes nothing of an answer for so long.
	SendTimeout time.Duration `yaml:"send_timeout"`
	// IdleTimeout closes a connection that waits for its next request.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// MaxConnections bounds the connections served at once; more wait. 0 means no bound.
	MaxConnections int `yaml:"max_connections"`
	// DrainDelay is how long the proxy goes on serving, not ready, after SIGTERM.
	DrainDelay time.Duration `yaml:"drain_delay"`
	// ShutdownGrace bounds the time for running requests to end and be recorded.
	ShutdownGrace time.Duration `yaml:"shutdown_grace"`
	// StatusPath is a path on which callers can ask what is known of a key of theirs; empty
	// means none, and that every path is the upstream's.
	StatusPath string `yaml:"status_path"`
	// TrustedProxies are those whose X-Forwarded-* and Forwarded headers are kept: CIDRs,
	// addresses, "loopback" and "private".
	TrustedProxies []string `yaml:"trusted_proxies"`
}

// ServerTLS are the certificates of the listener, in PEM. Renewed files are taken up
// without a restart.
type ServerTLS struct {
	// CertFile is the certificate, with those between it and its authority.
	CertFile string `yaml:"cert_file"`
	// KeyFile is its key.
	KeyFile string `yaml:"key_file"`
	// ClientCAFile is a file with the authorities of client certificates, which are then required.
	ClientCAFile string `yaml:"client_ca_file"`
}

// AdminConfig is the listener for probes and metrics. Nothing on it changes anything.
type AdminConfig struct {
	// Listen is the address; empty means no admin listener.
	Listen string `yaml:"listen"`
	// ReadyRequiresStore makes /readyz fail while the store can't be written.
	ReadyRequiresStore bool `yaml:"ready_requires_store"`
}

// UpstreamConfig is the service behind the proxy.
type UpstreamConfig struct {
	// URL is http://host:port, https://host:port, h2c://host:port or unix:///path/to.sock.
	URL string `yaml:"url"`
	// ConnectTimeout bounds dialling and, for https, the handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// ResponseTimeout bounds a guarded request from its last byte to the answer's last
	// byte.
	ResponseTimeout time.Duration `yaml:"response_timeout"`
	// MaxIdleConns is how many connections are kept for the next requests.
	MaxIdleConns int `yaml:"max_idle_conns"`
	// PreserveHost forwards the caller's Host, otherwise the upstream's own is sent.
	PreserveHost bool `yaml:"preserve_host"`
	// TLS is how an https upstream is verified, and what the proxy shows it.
	TLS UpstreamTLS `yaml:"tls"`
}

// UpstreamTLS has the files of an https upstream, in PEM.
type UpstreamTLS struct {
	// CAFile is a file with the authorities that the upstream's certificate is verified against,
	// instead of the machine's.
	CAFile string `yaml:"ca_file"`
	// CertFile is the certificate that the proxy shows. Renewed files are taken up without
	// a restart.
	CertFile string `yaml:"cert_file"`
	// KeyFile is its key.
	KeyFile string `yaml:"key_file"`
	// InsecureSkipVerify takes any certificate: for tests only.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// LimitsConfig bounds what guarded requests may take of this process. Past either bound a
// request is answered 503 overloaded, and nothing is claimed.
type LimitsConfig struct {
	// MaxConcurrent bounds the guarded requests at once. 0 means no bound.
	MaxConcurrent int `yaml:"max_concurrent"`
	// MaxBufferedBytes bounds the bodies of guarded requests and answers in memory.
	MaxBufferedBytes dedup.Size `yaml:"max_buffered_bytes"`
}

// DefaultServerConfig has the defaults of the server section.
func DefaultServerConfig() ServerConfig {
	return ServerConfig{
		Listen:            ":8080",
		ReadHeaderTimeout: 10 * time.Second,
		BodyTimeout:       30 * time.Second,
		SendTimeout:       60 * time.Second,
		IdleTimeout:       120 * time.Second,
		ShutdownGrace:     30 * time.Second,
		TrustedProxies:    []string{trustLoopback, trustPrivate},
	}
}

// DefaultAdminConfig has the defaults of the admin section.
func DefaultAdminConfig() AdminConfig {
	return AdminConfig{Listen: ":9090", ReadyRequiresStore: true}
}

// DefaultUpstreamConfig has the defaults of the upstream section.
func DefaultUpstreamConfig() UpstreamConfig {
	return UpstreamConfig{
		URL:             "http://127.0.0.1:3000",
		ConnectTimeout:  5 * time.Second,
		ResponseTimeout: 60 * time.Second,
		MaxIdleConns:    256,
		PreserveHost:    true,
	}
}

// DefaultLimitsConfig has the defaults of the limits section.
func DefaultLimitsConfig() LimitsConfig {
	return LimitsConfig{MaxBufferedBytes: 256 * dedup.MiB}
}
