package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// maxHeaderBytes bounds a request's head; beyond it net/http answers 431.
const maxHeaderBytes = 64 << 10

// Listen binds the addresses of the server and, if it has them, of the admin and the
// control listener.
func (p *Proxy) Listen() error {
	var bound []net.Listener
	bind := func(address, what string) (l net.Listener, err error) {
		if address == "" {
			return nil, nil
		}
		if l, err = net.Listen("tcp", address); err == nil {
			bound = append(bound, l)
			if what == forControl {
				err = p.control.loopbackOnly(l)
			}
		}
		if err != nil {
			for _, l := range bound {
				l.Close()
			}
			return nil, fmt.Errorf("listen for %s: %w", what, err)
		}
		return l, nil
	}
	var err error
	if p.listener, err = bind(p.options.Server.Listen, "requests (server.listen)"); err != nil {
		return err
	}
	if p.adminListener, err = bind(p.options.Admin.Listen, "probes and metrics (admin.listen)"); err != nil {
		return err
	}
	p.controlListener, err = bind(p.options.Control.Listen, forControl)
	return err
}

const forControl = "operators (control.listen)"

// Addr is where callers reach the proxy, once Listen has succeeded.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// AdminAddr is where probes and metrics are, once Listen has succeeded; nil without an
// admin listener.
func (p *Proxy) AdminAddr() net.Addr { return addrOf(p.adminListener) }

// ControlAddr is where operators reach it, once Listen has succeeded; nil without a control
// listener.
func (p *Proxy) ControlAddr() net.Addr { return addrOf(p.controlListener) }

func addrOf(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Serve serves until ctx ends, then drains: it turns readiness off, goes on serving for
// the drain delay, stops listening, and lets running requests end and be recorded within
// the shutdown grace. What can't end in that time stays a claim, and is an unknown outcome
// to others. It returns an error only when a listener failed.
func (p *Proxy) Serve(ctx context.Context) error {
	main, admin, control := p.servers()
	p.rules.Load().tokens.fetch()
	failed := make(chan error, 3)
	serve := func(s *http.Server, l net.Listener) {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve on %v: %w", l.Addr(), err)
		}
	}
	go serve(main, wrapListener(p.listener, p.options.Server, p.tls))
	if p.adminListener != nil {
		go serve(admin, p.adminListener)
	}
	if p.controlListener != nil {
		go serve(control, p.controlListener)
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	p.drain(main)
	admin.Close()
	control.Close()
	p.upstream.close()
	p.asks.CloseIdleConnections()
	return err
}

func (p *Proxy) servers() (main, admin, control *http.Server) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(p.tls != nil)
	protocols.SetUnencryptedHTTP2(p.tls == nil)
	errorLog, _ := zap.NewStdLogAt(p.log, zap.DebugLevel) // fails for no level that exists
	main = &http.Server{
		Handler:           p,
		Protocols:         &protocols,
		ReadHeaderTimeout: p.options.Server.ReadHeaderTimeout,
		IdleTimeout:       p.options.Server.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,

		DisableGeneralOptionsHandler: true, // OPTIONS * is the upstream's too
	}
	admin = &http.Server{
		Handler:           p.adminHandler(),
		ReadHeaderTimeout: p.options.Server.ReadHeaderTimeout,
		ErrorLog:          errorLog,
	}
	control = &http.Server{
		Handler:           p.control,
		ReadHeaderTimeout: p.options.Server.ReadHeaderTimeout,
		IdleTimeout:       p.options.Server.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
	}
	return main, admin, control
}

// Drain makes the replica not ready and lets callers leave their connections; by says who
// asked for it. It serves on until Serve's context ends.
func (p *Proxy) Drain(by string) {
	p.draining.Store(true)
	p.log.Warn("draining was asked for: not ready from now on, and serving until SIGTERM", zap.String("by", by))
}

// drain ends the service in order. Over HTTP/2 Shutdown doesn't wait for requests whose
// caller is gone, so guarded requests are counted here.
func (p *Proxy) drain(main *http.Server) {
	p.draining.Store(true)
	p.log.Info("draining", zap.Duration("drain_delay", p.options.Server.DrainDelay), zap.Duration("shutdown_grace", p.options.Server.ShutdownGrace))
	time.Sleep(p.options.Server.DrainDelay)

	ctx, cancel := context.WithTimeout(context.Background(), p.options.Server.ShutdownGrace)
	defer cancel()
	p.stop()
	err := main.Shutdown(ctx)
	ended := p.running.wait(ctx)
	p.later.wait(ctx)
	p.tracing.close(ctx)
	if err != nil || !ended {
		p.log.Warn("not all requests ended within server.shutdown_grace; the outcome of those that are guarded is unknown to others")
		main.Close()
	}
}
