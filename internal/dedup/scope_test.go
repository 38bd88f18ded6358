package dedup_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

// TestScopeIDIsGolden keeps the IDs of this version: another ID for the same operation
// forgets every live key at an upgrade. The values were computed by a program of its own
// in another language from the layout in Scope.ID's comment.
func TestScopeIDIsGolden(t *testing.T) {
	for _, tc := range []struct {
		scope dedup.Scope
		key   dedup.Key
		want  dedup.ID
	}{
		{dedup.Scope{}, "abc", "9TUEQxzGD20Rxz6fTU9UXZAQ0uiwFaAtBCOWTrWzVko"},
		{dedup.Scope{Version: "v2", Route: "payments", Tenant: new("acme"), Principals: []*string{new("user-1"), nil, new("")}}, "5f0c-1", "1LPMONhaAHilAh3A5LCFbCak10ZbNYv1Q1PVN8Lhf_U"},
		{dedup.Scope{Principals: []*string{new("a")}}, dedup.Key(strings.Repeat("k", 255)), "dshqd0bXZZl0AgnYP4qNtTfUCprMTpIYOs8NpgzdBqo"},
	} {
		if got := tc.scope.ID(tc.key); got != tc.want {
			t.Errorf("ID of %q in %+v is %s, want %s", tc.key, tc.scope, got, tc.want)
		}
	}
}

// TestScopeIDIsUnambiguous lists operations that a careless join takes for one another.
func TestScopeIDIsUnambiguous(t *testing.T) {
	principals := func(names ...string) dedup.Scope {
		var s dedup.Scope
		for _, n := range names {
			s.Principals = append(s.Principals, &n)
		}
		return s
	}
	operations := []struct {
		scope dedup.Scope
		key   dedup.Key
	}{
		{principals("a:b"), "c"},
		{principals("a"), "b:c"},
		{principals("a", "b"), "c"},
		{principals("a", "b:c"), "c"},
		{principals("ab"), "c"},
		{principals("a"), "bc"},
		{principals("abc"), ""},
		{principals(), "abc"},
		{principals(""), "abc"},
		{principals("", ""), "abc"},
		{dedup.Scope{Principals: []*string{nil}}, "abc"},
		{dedup.Scope{Principals: []*string{nil, nil}}, "abc"},
		{dedup.Scope{Principals: []*string{nil, new("")}}, "abc"},
		{dedup.Scope{Principals: []*string{new(""), nil}}, "abc"},
		{principals("a", "b"), "abc"},
		{principals("b", "a"), "abc"},
		{dedup.Scope{Tenant: new("")}, "abc"},
		{dedup.Scope{Tenant: new("a")}, "bc"},
		{dedup.Scope{Tenant: new("a"), Principals: []*string{new("b")}}, "c"},
		{dedup.Scope{Tenant: new("b"), Principals: []*string{new("a")}}, "c"},
		{dedup.Scope{Tenant: new("ab")}, "c"},
		{dedup.Scope{Route: "a"}, "bc"},
		{dedup.Scope{Version: "a"}, "bc"},
		{dedup.Scope{Version: "ab"}, "c"},
		{dedup.Scope{Version: "a", Route: "b"}, "c"},
		{dedup.Scope{Version: "b", Route: "a"}, "c"},
		{dedup.Scope{Route: "ab"}, "c"},
		{dedup.Scope{Route: "a", Tenant: new("b")}, "c"},
		{dedup.Scope{Route: "\x00"}, "abc"},
		{dedup.Scope{Version: "\x00"}, "abc"},
		{dedup.Scope{}, "\x00abc"},
		{dedup.Scope{}, "ABC"},
		{principals(strings.Repeat("a", 127)), "c"},
		{principals(strings.Repeat("a", 128)), "c"},
		{principals(strings.Repeat("a", 128)), ""},
	}
	seen := map[dedup.ID]int{}
	for i, op := range operations {
		id := op.scope.ID(op.key)
		if first, ok := seen[id]; ok {
			t.Errorf("operations %d and %d share an ID: %+v and %+v", first, i, operations[first], op)
		}
		seen[id] = i
		if op.scope.ID(op.key) != id {
			t.Errorf("operation %d has two IDs", i)
		}
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`).MatchString(string(id)) {
			t.Errorf("ID %q is not what dedup.ID promises", id)
		}
	}
}

func TestScope(t *testing.T) {
	account := func(r *dedup.Rule) { r.IdentityHeader = "X-Account" }
	two := func(r *dedup.Rule) { r.Identity.Headers = []string{"X-Account", "X-User"} }
	anonymous := func(r *dedup.Rule) { two(r); r.Identity.OnMissing = dedup.IdentityAnonymous }
	tenant := func(r *dedup.Rule) { r.TenantHeader = "X-Tenant" }
	optional := func(r *dedup.Rule) { tenant(r); r.RequireTenant = new(false) }
	short := func(r *dedup.Rule) { account(r); tenant(r); r.RequireTenant = new(false); r.MaxScopeLength = 3 }
	for name, tc := range map[string]struct {
		rule   func(*dedup.Rule)
		lines  []string
		want   dedup.Scope
		reason dedup.Reason
		detail string
	}{
		"no identity asked":              {lines: []string{"X-Account: a"}, want: dedup.Scope{}},
		"version":                        {rule: func(r *dedup.Rule) { r.Version = "v2" }, want: dedup.Scope{Version: "v2"}},
		"by route":                       {rule: func(r *dedup.Rule) { r.ScopeByRoute = true }, want: dedup.Scope{Route: "payments"}},
		"identity":                       {rule: account, lines: []string{"x-account: a"}, want: dedup.Scope{Principals: []*string{new("a")}}},
		"identity missing":               {rule: account, reason: "missing_identity", detail: "X-Account"},
		"identity empty":                 {rule: account, lines: []string{"X-Account: "}, reason: "missing_identity", detail: "X-Account"},
		"identity twice":                 {rule: account, lines: []string{"X-Account: a", "X-Account: b"}, reason: "invalid_identity", detail: "X-Account was sent 2 times"},
		"identity twice, equal":          {rule: account, lines: []string{"X-Account: a", "X-Account: a"}, reason: "invalid_identity", detail: "2 times"},
		"identity twice, empty":          {rule: account, lines: []string{"X-Account: ", "X-Account: a"}, reason: "invalid_identity", detail: "2 times"},
		"identity at the bound":          {rule: short, lines: []string{"X-Account: abc"}, want: dedup.Scope{Principals: []*string{new("abc")}}},
		"identity past the bound":        {rule: short, lines: []string{"X-Account: abcd"}, reason: "invalid_identity", detail: "longer than 3"},
		"identity with a space":          {rule: account, lines: []string{"X-Account: ab c"}, reason: "invalid_identity", detail: "at index 2."},
		"identity above ASCII":           {rule: account, lines: []string{"X-Account: abcä"}, reason: "invalid_identity", detail: "at index 3."},
		"identity of a broken byte":      {rule: account, lines: []string{"X-Account: \xff"}, reason: "invalid_identity", detail: "at index 0."},
		"identity in quotes is as it is": {rule: account, lines: []string{`X-Account: "a"`}, want: dedup.Scope{Principals: []*string{new(`"a"`)}}},
		"two in the rule's order":        {rule: two, lines: []string{"X-User: u", "X-Account: a"}, want: dedup.Scope{Principals: []*string{new("a"), new("u")}}},
		"second missing":                 {rule: two, lines: []string{"X-Account: a"}, reason: "missing_identity", detail: "X-User"},
		"anonymous":                      {rule: anonymous, want: dedup.Scope{Principals: []*string{nil, nil}}},
		"anonymous by an empty one":      {rule: anonymous, lines: []string{"X-Account: ", "X-User: u"}, want: dedup.Scope{Principals: []*string{nil, new("u")}}},
		"anonymous but invalid":          {rule: anonymous, lines: []string{"X-Account: a b"}, reason: "invalid_identity", detail: "X-Account"},
		"anonymous but twice":            {rule: anonymous, lines: []string{"X-User: ", "X-User: "}, reason: "invalid_identity", detail: "X-User"},
		"tenant":                         {rule: tenant, lines: []string{"X-Tenant: t"}, want: dedup.Scope{Tenant: new("t")}},
		"tenant missing":                 {rule: tenant, reason: "missing_identity", detail: "X-Tenant"},
		"tenant empty":                   {rule: tenant, lines: []string{"X-Tenant: "}, reason: "missing_identity", detail: "X-Tenant"},
		"tenant required by word":        {rule: func(r *dedup.Rule) { tenant(r); r.RequireTenant = new(true) }, reason: "missing_identity", detail: "X-Tenant"},
		"tenant not required":            {rule: optional, want: dedup.Scope{}},
		"tenant not required, empty":     {rule: optional, lines: []string{"X-Tenant: "}, want: dedup.Scope{}},
		"tenant not required, there":     {rule: optional, lines: []string{"X-Tenant: t"}, want: dedup.Scope{Tenant: new("t")}},
		"tenant not required, invalid":   {rule: optional, lines: []string{"X-Tenant: \t"}, reason: "invalid_identity", detail: "X-Tenant"},
		"tenant past the bound":          {rule: short, lines: []string{"X-Tenant: abcd", "X-Account: a"}, reason: "invalid_identity", detail: "X-Tenant is longer than 3"},
		"the anonymous still need a tenant": {
			rule:   func(r *dedup.Rule) { anonymous(r); tenant(r) },
			reason: "missing_identity", detail: "X-Tenant",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, rejection := rule(t, tc.rule).Scope(headers(tc.lines...), nil)
			wantRejection(t, rejection, tc.reason, tc.detail)
			if !equalScopes(got, tc.want) {
				t.Errorf("scope %s, want %s", got.ID("k"), tc.want.ID("k"))
			}
		})
	}
}

// TestScopeOfSubjects: callers that tokens name differ from each other and from all that
// headers name.
func TestScopeOfSubjects(t *testing.T) {
	token := func(r *dedup.Rule) { r.Identity.JWT.Claim, r.Identity.JWT.SecretFile = "sub", "/secret" }
	anonymous := func(r *dedup.Rule) { token(r); r.Identity.OnMissing = dedup.IdentityAnonymous }
	both := func(r *dedup.Rule) { token(r); r.Identity.Headers = []string{"X-Account"} }
	account := func(r *dedup.Rule) { r.Identity.Headers = []string{"X-Account"} }
	subject := func(issuer, claim, value string) *dedup.Subject {
		return &dedup.Subject{Issuer: issuer, Claim: claim, Value: value}
	}
	seen := map[dedup.ID]int{}
	for i, tc := range []struct {
		rule    func(*dedup.Rule)
		subject *dedup.Subject
		lines   []string
	}{
		{account, nil, []string{"X-Account: x"}},
		{token, subject("", "sub", "x"), nil},
		{token, subject("i", "sub", "x"), nil},
		{token, subject("j", "sub", "x"), nil},
		{token, subject("i", "email", "x"), nil},
		{token, subject("i", "sub", "y"), nil},
		{token, subject("is", "ub", "x"), nil},
		{token, subject("i", "subx", ""), nil},
		{anonymous, nil, nil},
		{both, subject("i", "sub", "x"), []string{"X-Account: x"}},
		{both, subject("i", "sub", "y"), []string{"X-Account: x"}},
		{both, subject("i", "sub", "x"), []string{"X-Account: y"}},
		{token, subject("i", "sub", "x y\x00é"), nil},
	} {
		scope, rejection := rule(t, tc.rule).Scope(headers(tc.lines...), tc.subject)
		if rejection != nil {
			t.Fatalf("caller %d: %v", i, rejection)
		}
		id := scope.ID("k")
		if first, ok := seen[id]; ok {
			t.Errorf("callers %d and %d are one", first, i)
		}
		seen[id] = i
	}
	_, rejection := rule(t, token).Scope(headers("X-Account: x"), nil)
	wantRejection(t, rejection, "missing_identity", "bearer token")
	_, rejection = rule(t, both).Scope(headers(), subject("i", "sub", "x"))
	wantRejection(t, rejection, "missing_identity", "X-Account")
	_, rejection = rule(t, token).Scope(headers(), subject("i", "sub", strings.Repeat("x", 256)))
	wantRejection(t, rejection, "invalid_identity", "longer than 255")
	if _, rejection := rule(t, nil).Scope(headers(), subject("i", "sub", "x")); rejection != nil {
		t.Errorf("a rule without tokens refuses: %v", rejection)
	}
}

func equalScopes(a, b dedup.Scope) bool {
	equal := func(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	return a.Version == b.Version && a.Route == b.Route && equal(a.Tenant, b.Tenant) && slices.EqualFunc(a.Principals, b.Principals, equal)
}

func TestIdentityIsNeverRepeated(t *testing.T) {
	r := rule(t, func(r *dedup.Rule) { r.IdentityHeader = "X-Account"; r.TenantHeader = "X-Tenant" })
	for _, value := range []string{"SEKRIT x", "SEKRIT\x00", "äSEKRIT", strings.Repeat("SEKRIT", 50)} {
		for _, lines := range [][]string{
			{"X-Tenant: t", "X-Account: " + value},
			{"X-Tenant: " + value},
			{"X-Tenant: " + value, "X-Tenant: " + value},
		} {
			_, rejection := r.Scope(headers(lines...), nil)
			if rejection == nil {
				t.Errorf("%q is accepted", lines)
			} else if strings.Contains(rejection.Error()+rejection.Detail, "SEKRIT") {
				t.Errorf("the rejection of %q repeats it: %v", lines, rejection)
			}
		}
	}
}

// TestTokens: a token is what dedup.Token promises, and no two are the same.
func TestTokens(t *testing.T) {
	seen := map[dedup.Token]bool{}
	for range 1000 {
		token := dedup.NewToken()
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`).MatchString(string(token)) || len(token) != dedup.TokenLength {
			t.Fatalf("token %q", token)
		}
		if seen[token] {
			t.Fatalf("token %q twice", token)
		}
		seen[token] = true
	}
}

// TestScopeOfCredentials: a caller may be who its credentials say, and those have a space.
func TestScopeOfCredentials(t *testing.T) {
	r := rule(t, func(r *dedup.Rule) { r.IdentityHeader = "authorization" })
	id := func(value string) dedup.ID {
		s, rejection := r.Scope(func(string) []string { return []string{value} }, nil)
		if rejection != nil {
			t.Fatalf("%q: %v", value, rejection)
		}
		return s.ID("k")
	}
	if id("Bearer abc") == id("Bearer abd") || id("Bearer a") == id("Basic a") {
		t.Error("two credentials are one caller")
	}
	if _, rejection := r.Scope(func(string) []string { return []string{"Bearer\tabc"} }, nil); rejection == nil {
		t.Error("a tab is no part of credentials")
	}
	other := rule(t, func(r *dedup.Rule) { r.IdentityHeader = "X-Account" })
	if _, rejection := other.Scope(func(string) []string { return []string{"a b"} }, nil); rejection == nil {
		t.Error("another identity has no spaces")
	}
}

// TestObservedIDsAreOthers: what is kept under one is found under no ID that enforce uses.
func TestObservedIDsAreOthers(t *testing.T) {
	observed := func(id dedup.ID) dedup.ID { return dedup.Operation{ID: id}.Observed().ID }
	seen := map[dedup.ID]bool{}
	for _, key := range []dedup.Key{"a", "b"} {
		id := dedup.Scope{}.ID(key)
		for _, id := range []dedup.ID{id, observed(id), observed(observed(id))} {
			if seen[id] || len(id) != 43 {
				t.Errorf("%s of %s", id, key)
			}
			seen[id] = true
		}
		if again := observed((dedup.Scope{}).ID(key)); again != observed(id) {
			t.Error("two IDs of one operation")
		}
	}
}
