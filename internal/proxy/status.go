package proxy

import (
	"net/http"
	"net/url"

	"go.uber.org/zap"

	"idemproxy/internal/dedup"
	"idemproxy/internal/metrics"
)

// tell answers a caller that asks what is known of a key, on server.status_path. It has
// the headers by which its request would be guarded; nothing is sent on, and no recorded
// answer is told.
func (p *Proxy) tell(w http.ResponseWriter, r *http.Request) {
	rules := p.rules.Load()
	rt, rejection := rules.routes.asked(r.URL)
	if rejection != nil {
		p.answer(w, nil, rejection)
		return
	}
	id, standing, rejection := p.ask(r, rt)
	fields := []zap.Field{zap.String("route", rt.rule.Name), zap.String("key_hash", string(id))}
	if rejection != nil {
		rt.metrics.Asked(metrics.StateRefused)
		p.answer(w, rt, rejection)
		fields = append(fields, zap.String("state", metrics.StateRefused), zap.String("reason", string(rejection.Reason)), zap.Error(rejection.Err))
	} else {
		rt.metrics.Asked(string(standing.State))
		p.letGo(w)
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, http.StatusOK, "application/json", standing)
		fields = append(fields, zap.String("state", string(standing.State)))
	}
	if rules.accessLog {
		p.log.Info("status", fields...)
	}
}

// ask reads whose key is meant, by the checks of a guarded request, and asks for it.
func (p *Proxy) ask(r *http.Request, rt *route) (dedup.ID, dedup.Standing, *dedup.Rejection) {
	none := dedup.Standing{}
	key, rejection := rt.rule.Key(r.Header.Values)
	if rejection != nil {
		return "", none, rejection
	}
	if key == "" {
		return "", none, &dedup.Rejection{Reason: dedup.ReasonMissingKey, Detail: "This question needs the header " + rt.rule.HeaderName[0] + ", with the key that is asked about."}
	}
	if rejection := rt.checkHead(r, false); rejection != nil {
		return "", none, rejection
	}
	caller, rejection := rt.subject(r)
	if rejection != nil {
		return "", none, rejection
	}
	scope, rejection := rt.rule.Scope(r.Header.Values, caller)
	if rejection != nil {
		return "", none, rejection
	}
	return p.guard.Ask(r.Context(), rt.rule, scope, key, r.Header.Values)
}

// asked finds the route that a question names, or the only one there is.
func (rs *routes) asked(u *url.URL) (*route, *dedup.Rejection) {
	query, err := url.ParseQuery(u.RawQuery)
	names := query["route"]
	if err != nil || len(names) > 1 {
		return nil, &dedup.Rejection{Reason: dedup.ReasonBadRequest, Detail: "The query must be ?route= and the name of a route."}
	}
	var found []*route
	for _, rt := range rs.all {
		if rt.rule.Mode != dedup.ModeOff && (len(names) == 0 || names[0] == rt.rule.Name) {
			found = append(found, rt)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return nil, &dedup.Rejection{Reason: dedup.ReasonBadRequest, Detail: "There is no such route."}
	default:
		return nil, &dedup.Rejection{Reason: dedup.ReasonBadRequest, Detail: "Say by ?route= and its name to which route the key belongs."}
	}
}
