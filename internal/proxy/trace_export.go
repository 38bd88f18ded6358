package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// flushTime bounds how long a stop waits for a collector to take the last spans.
const flushTime = 5 * time.Second

// tracing makes spans and exports them in the background; a request never waits for that.
// When there are more than the collector takes, the newest are lost.
type tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// newTracing returns nil when nothing is to be traced. It doesn't connect. Besides the
// configuration it heeds OpenTelemetry's own variables for what that does not say, such as
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES.
func newTracing(cfg TracingConfig, version string, log *zap.Logger) (*tracing, error) {
	if cfg.OTLPEndpoint == "" {
		return nil, nil
	}
	ctx := context.Background()
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "idemproxy"), attribute.String("service.version", version)),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter, err := newExporter(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("make exporter for tracing.otlp_endpoint: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: log}) // the only way to hear of it; one for the process
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter),
		sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.SampleRatio))),
	)
	return &tracing{provider, provider.Tracer("idemproxy", trace.WithInstrumentationVersion(version))}, nil
}

// newExporter makes the exporter that the endpoint's scheme asks for.
func newExporter(ctx context.Context, cfg TracingConfig) (sdk.SpanExporter, error) {
	to, err := cfg.target()
	if err != nil {
		return nil, err
	}
	if to.grpc {
		return otlptrace.New(ctx, otlptracegrpc.NewClient(otlptracegrpc.WithEndpointURL(to.url)))
	}
	return otlptrace.New(ctx, otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(to.url)))
}

// close exports what is left, until ctx ends, but not for longer than flushTime.
func (t *tracing) close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// complaints logs what goes wrong with exporting, once a minute at most: a collector may be
// away for hours.
type complaints struct {
	log *zap.Logger

	mu       sync.Mutex
	next     time.Time
	withheld int
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.next) {
		c.withheld++
		return
	}
	c.log.Warn("spans could not be exported", zap.Error(err), zap.Int("not_logged", c.withheld))
	c.next, c.withheld = now.Add(time.Minute), 0
}
