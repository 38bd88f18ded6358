package proxy

import (
	"encoding/json"
	"net/http"
	"slices"

	"idemproxy/internal/dedup"
)

// lookupPath is the one call that is a POST and only reads.
const lookupPath = "/api/lookup"

// lookup names a key as its caller does. It comes as a body: what is in a path or query
// ends up in histories and logs.
type lookup struct {
	Route   string            `json:"route"`
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers"` // those that say who the caller is
}

// naming says what names a key of a rule, for whoever asks for one.
type naming struct {
	KeyHeader string   `json:"key_header"`
	Headers   []string `json:"identity_headers"` // the tenant's first
	ByToken   bool     `json:"identity_by_token,omitempty"`
}

func namingOf(rule *dedup.Rule) naming {
	n := naming{KeyHeader: rule.HeaderName[0], Headers: []string{}, ByToken: rule.Identity.JWT.Claim != ""}
	if rule.TenantHeader != "" {
		n.Headers = append(n.Headers, rule.TenantHeader)
	}
	n.Headers = append(n.Headers, rule.IdentityHeaders()...)
	return n
}

// lookUp tells what is known of a key. It changes nothing: it is a POST for its body alone.
func (c *control) lookUp(r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	var l lookup
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&l); err != nil {
		return nil, errBadRequest(`The body must be {"route": "…", "key": "…", "headers": {"NAME": "VALUE"}}.`)
	}
	all := c.p.rules.Load().routes.all
	i := slices.IndexFunc(all, func(rt *route) bool { return rt.rule.Name == l.Route })
	if i < 0 {
		return nil, errBadRequest("route: there is no such route.")
	}
	id, err := l.id(all[i].rule)
	if err != nil {
		return nil, err
	}
	return about(c.keys(r).Show(r.Context(), id, false))
}

// id is the key under the rule, by the checks of a request.
func (l lookup) id(rule *dedup.Rule) (dedup.ID, error) {
	if namingOf(rule).ByToken {
		return "", errBadRequest("The callers of this route are named by their tokens: look the key up by its key_hash.")
	}
	header := http.Header{}
	for name, value := range l.Headers {
		header.Set(name, value)
	}
	header.Set(rule.HeaderName[0], l.Key)
	key, refused := rule.Key(header.Values)
	if refused != nil {
		return "", errBadRequest(refused.Detail)
	}
	scope, refused := rule.Scope(header.Values, nil)
	if refused != nil {
		return "", errBadRequest(refused.Detail)
	}
	op := dedup.Operation{ID: scope.ID(key)}
	if rule.Mode == dedup.ModeObserve {
		op = op.Observed()
	}
	return op.ID, nil
}
