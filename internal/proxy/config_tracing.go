package proxy

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"idemproxy/internal/dedup"
)

// TracingConfig says where the spans of requests go.
type TracingConfig struct {
	// OTLPEndpoint is the collector: http:// or https:// for OTLP over HTTP, host:port or
	// grpc:// for gRPC without TLS, grpcs:// for gRPC with TLS. Empty means no tracing.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// SampleRatio is the part of traces that begin here which is exported, from 0 to 1; of
	// a trace that a caller began, its own decision counts.
	SampleRatio float64 `yaml:"sample_ratio"`
}

// DefaultTracingConfig has the defaults of the tracing section.
func DefaultTracingConfig() TracingConfig { return TracingConfig{SampleRatio: 1} }

// Validate returns what is wrong with the tracing section.
func (c TracingConfig) Validate() []dedup.Fault {
	var faults []dedup.Fault
	if c.OTLPEndpoint != "" {
		if _, err := c.target(); err != nil {
			faults = append(faults, dedup.Fault{Path: "otlp_endpoint", Message: err.Error()})
		}
	}
	switch {
	case !(c.SampleRatio >= 0 && c.SampleRatio <= 1): // also not a number
		faults = append(faults, dedup.Fault{Path: "sample_ratio", Message: "must be from 0 to 1, such as 0.1"})
	case c.SampleRatio != 1 && c.OTLPEndpoint == "":
		faults = append(faults, dedup.Fault{Path: "sample_ratio", Message: "has no effect without tracing.otlp_endpoint"})
	}
	return faults
}

// A collector is where spans go.
type collector struct {
	grpc bool
	url  string // https:// for TLS, http:// without; over HTTP with the path of the traces
}

// tracesPath is where OTLP over HTTP takes spans, below the endpoint.
const tracesPath = "/v1/traces"

// target reads the endpoint. Its errors never repeat it.
func (c TracingConfig) target() (collector, error) {
	endpoint := c.OTLPEndpoint
	if !strings.Contains(endpoint, "://") {
		endpoint = "grpc://" + endpoint
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return collector{}, errors.New("not an endpoint: use http://host:4318, https://…, host:4317, grpc://… or grpcs://…")
	case u.User != nil:
		return collector{}, errors.New("must hold no user or password; headers for the collector come from OTEL_EXPORTER_OTLP_HEADERS")
	case u.RawQuery != "" || u.Fragment != "":
		return collector{}, errors.New("must have neither query nor fragment")
	case u.Hostname() == "":
		return collector{}, errors.New("has no host: use http://host:4318 or host:4317")
	}
	switch u.Scheme {
	case "http", "https":
		if !strings.HasSuffix(u.Path, tracesPath) {
			u = u.JoinPath(tracesPath)
		}
		return collector{url: u.String()}, nil
	case "grpc", "grpcs":
		if strings.Trim(u.Path, "/") != "" {
			return collector{}, errors.New("must end after the host and port: gRPC has no path")
		}
		if u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), "4317")
		}
		return collector{grpc: true, url: map[string]string{"grpc": "http://", "grpcs": "https://"}[u.Scheme] + u.Host}, nil
	default:
		return collector{}, errors.New("must begin with http://, https://, grpc:// or grpcs://, or be host:port")
	}
}
