package proxy

import (
	"errors"

	"idemproxy/internal/dedup"
)

// Reloadable is the part of the Options that Reload changes.
type Reloadable struct {
	Routes    []dedup.Rule
	Limits    LimitsConfig
	AccessLog bool
}

// rules are what a reload exchanges as a whole. A request is served from its beginning to
// its end by the route that it found in them.
type rules struct {
	routes    *routes
	tokens    *verifiers
	accessLog bool
}

// newRules makes rules of what is configured. It fails on what CheckRoutes would refuse,
// and on keys of tokens that can't be read.
func (p *Proxy) newRules(r Reloadable) (*rules, error) {
	routes, faults := newRoutes(r.Routes, p.options.Metrics)
	if len(faults) > 0 {
		return nil, errors.New(faults[0].Path + ": " + faults[0].Message)
	}
	tokens, err := newVerifiers(routes, p.rules.Load(), p.options.Metrics, p.log)
	if err != nil {
		return nil, err
	}
	return &rules{routes: routes, tokens: tokens, accessLog: r.AccessLog}, nil
}

// Reload puts other routes and limits in force, for the requests that come from now on; it
// may be called while the Proxy serves. Requests that are running end by their old rules,
// and the room that they take counts under the new limits. When it fails, nothing has
// changed.
func (p *Proxy) Reload(r Reloadable) error {
	if err := p.exchange(r); err != nil {
		return err
	}
	p.rules.Load().tokens.fetch()
	return nil
}

func (p *Proxy) exchange(r Reloadable) error {
	next, err := p.newRules(r)
	if err != nil {
		return err
	}
	p.budget.limit(r.Limits)
	p.rules.Store(next)
	return nil
}
