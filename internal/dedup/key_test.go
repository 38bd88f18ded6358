package dedup_test

import (
	"slices"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

func TestKey(t *testing.T) {
	aliases := func(r *dedup.Rule) { r.HeaderName = dedup.Names{"Idempotency-Key", "X-Idempotency-Key", "Request-Id"} }
	short := func(r *dedup.Rule) { r.MaxKeyLength = 4 }
	for name, tc := range map[string]struct {
		rule   func(*dedup.Rule)
		lines  []string
		want   dedup.Key
		reason dedup.Reason
		detail string
	}{
		"absent":                      {lines: []string{"Other: a"}},
		"plain":                       {lines: []string{"Idempotency-Key: abc"}, want: "abc"},
		"name in any case":            {lines: []string{"idempotency-KEY: abc"}, want: "abc"},
		"case of the key counts":      {lines: []string{"Idempotency-Key: aBc"}, want: "aBc"},
		"first and last of the range": {lines: []string{"Idempotency-Key: !~"}, want: "!~"},
		"every punctuation":           {lines: []string{"Idempotency-Key: a,b;c=d:e/f\\g'h"}, want: "a,b;c=d:e/f\\g'h"},
		"quote inside":                {lines: []string{`Idempotency-Key: a"b`}, want: `a"b`},
		"one byte":                    {lines: []string{"Idempotency-Key: a"}, want: "a"},
		"at the bound":                {rule: short, lines: []string{"Idempotency-Key: abcd"}, want: "abcd"},
		"past the bound":              {rule: short, lines: []string{"Idempotency-Key: abcde"}, reason: "invalid_key", detail: "longer than 4 characters"},
		"at the default bound":        {lines: []string{"Idempotency-Key: " + strings.Repeat("k", 255)}, want: dedup.Key(strings.Repeat("k", 255))},
		"past the default bound":      {lines: []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, reason: "invalid_key", detail: "longer than 255"},
		"empty":                       {lines: []string{"Idempotency-Key: "}, reason: "invalid_key", detail: "is empty"},
		"two lines":                   {lines: []string{"Idempotency-Key: a", "Idempotency-Key: b"}, reason: "invalid_key", detail: "sent 2 times"},
		"two equal lines":             {lines: []string{"Idempotency-Key: a", "Idempotency-Key: a"}, reason: "invalid_key", detail: "sent 2 times"},
		"an empty line and a key":     {lines: []string{"Idempotency-Key: ", "Idempotency-Key: a"}, reason: "invalid_key", detail: "sent 2 times"},
		"two empty lines":             {lines: []string{"Idempotency-Key: ", "Idempotency-Key: "}, reason: "invalid_key", detail: "sent 2 times"},

		"first alias":                   {rule: aliases, lines: []string{"Idempotency-Key: a"}, want: "a"},
		"last alias":                    {rule: aliases, lines: []string{"request-id: a"}, want: "a"},
		"two aliases":                   {rule: aliases, lines: []string{"Idempotency-Key: a", "Request-Id: a"}, reason: "invalid_key", detail: "sent 2 times"},
		"two aliases, one empty":        {rule: aliases, lines: []string{"Idempotency-Key: a", "X-Idempotency-Key: "}, reason: "invalid_key", detail: "sent 2 times"},
		"an alias twice":                {rule: aliases, lines: []string{"Request-Id: a", "Request-Id: b"}, reason: "invalid_key", detail: "sent 2 times"},
		"every alias":                   {rule: aliases, lines: []string{"Idempotency-Key: a", "X-Idempotency-Key: a", "Request-Id: a"}, reason: "invalid_key", detail: "sent 3 times"},
		"empty alias":                   {rule: aliases, lines: []string{"Request-Id: "}, reason: "invalid_key", detail: "is empty"},
		"an alias of another rule only": {lines: []string{"X-Idempotency-Key: a"}},

		"space inside":           {lines: []string{"Idempotency-Key: ab c"}, reason: "invalid_key", detail: "at index 2."},
		"space first":            {lines: []string{"Idempotency-Key:  a"}, reason: "invalid_key", detail: "at index 0."},
		"tab":                    {lines: []string{"Idempotency-Key: abc\td"}, reason: "invalid_key", detail: "at index 3."},
		"line feed":              {lines: []string{"Idempotency-Key: a\nb"}, reason: "invalid_key", detail: "at index 1."},
		"NUL":                    {lines: []string{"Idempotency-Key: \x00"}, reason: "invalid_key", detail: "at index 0."},
		"DEL":                    {lines: []string{"Idempotency-Key: a\x7f"}, reason: "invalid_key", detail: "at index 1."},
		"a byte above ASCII":     {lines: []string{"Idempotency-Key: ab\xe4"}, reason: "invalid_key", detail: "at index 2."},
		"a character above":      {lines: []string{"Idempotency-Key: abcä"}, reason: "invalid_key", detail: "at index 3."},
		"the last byte 0xff":     {lines: []string{"Idempotency-Key: \xff"}, reason: "invalid_key", detail: "at index 0."},
		"the first of two":       {lines: []string{"Idempotency-Key: a\x80b c"}, reason: "invalid_key", detail: "at index 1."},
		"too long before a byte": {rule: short, lines: []string{"Idempotency-Key: a bcd"}, reason: "invalid_key", detail: "longer than 4"},
	} {
		t.Run(name, func(t *testing.T) {
			got, rejection := rule(t, tc.rule).Key(headers(tc.lines...))
			wantRejection(t, rejection, tc.reason, tc.detail)
			if got != tc.want {
				t.Errorf("key %q, want %q", got, tc.want)
			}
		})
	}
}

// TestKeyInQuotes is RFC 9651, 3.3.3 and 4.2.5.
func TestKeyInQuotes(t *testing.T) {
	for name, tc := range map[string]struct {
		value  string
		want   dedup.Key
		detail string
	}{
		"whole":                       {value: `"abc"`, want: "abc"},
		"one byte":                    {value: `"a"`, want: "a"},
		"escaped quote":               {value: `"a\"b"`, want: `a"b`},
		"escaped backslash":           {value: `"a\\b"`, want: `a\b`},
		"escaped backslash last":      {value: `"a\\"`, want: `a\`},
		"only escapes":                {value: `"\"\\"`, want: `"\`},
		"at the bound":                {value: `"abcdefgh"`, want: "abcdefgh"},
		"escapes within the bound":    {value: `"\"\"\"\"\"\"\"\""`, want: `""""""""`},
		"past the bound":              {value: `"abcdefghi"`, detail: "longer than 8"},
		"empty":                       {value: `""`, detail: "is empty"},
		"only the opening":            {value: `"`, detail: "at byte 1."},
		"not closed":                  {value: `"abc`, detail: "at byte 4."},
		"closed by an escaped quote":  {value: `"ab\"`, detail: "at byte 5."},
		"ends in a backslash":         {value: `"ab\`, detail: "at byte 4."},
		"an escape there is not":      {value: `"ab\n"`, detail: "at byte 4."},
		"text after":                  {value: `"abc"x`, detail: "at byte 5."},
		"a parameter after":           {value: `"abc";a=1`, detail: "at byte 5."},
		"a second string":             {value: `"a","b"`, detail: "at byte 3."},
		"a control inside":            {value: "\"a\tb\"", detail: "at byte 2."},
		"DEL inside":                  {value: "\"ab\x7f\"", detail: "at byte 3."},
		"a byte above ASCII inside":   {value: "\"abc\xc3\xa4\"", detail: "at byte 4."},
		"a space inside":              {value: `"a b"`, detail: "at index 2."},
		"a space after an escape":     {value: `"\" b"`, detail: "at index 3."},
		"a space only":                {value: `" "`, detail: "at index 1."},
		"single quotes are no String": {value: `'abc'`, want: "'abc'"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rule(t, func(r *dedup.Rule) { r.MaxKeyLength = 8 })
			got, rejection := r.Key(headers("Idempotency-Key: " + tc.value))
			var reason dedup.Reason
			if tc.detail != "" {
				reason = dedup.ReasonInvalidKey
			}
			wantRejection(t, rejection, reason, tc.detail)
			if got != tc.want {
				t.Errorf("key %q, want %q", got, tc.want)
			}
		})
	}
}

// TestKeyIsNeverRepeated plants a marker in every way a key can be refused.
func TestKeyIsNeverRepeated(t *testing.T) {
	const marker = "SEKRIT"
	for _, value := range []string{
		marker + " x", marker + "\x00", marker + "ä", " " + marker, `"` + marker, `"` + marker + `"x`,
		`"` + marker + `\x"`, "\"" + marker + "\x01\"", `"a b` + marker + `"`, strings.Repeat(marker, 50),
	} {
		for _, lines := range [][]string{{value}, {value, value}} {
			_, rejection := rule(t, nil).Key(func(string) []string { return lines })
			if rejection == nil {
				t.Errorf("%q is a key", lines)
				continue
			}
			if strings.Contains(rejection.Detail, marker) || strings.Contains(rejection.Error(), marker) {
				t.Errorf("the rejection of %q repeats it: %v", lines, rejection)
			}
		}
	}
}

// FuzzKey compares Key with a slow definition of what a key is.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{
		"", "abc", `"abc"`, `"a\"b"`, `"a\\"`, `"a\`, `"`, `""`, `"a"b`, `"a b"`, "a b", "a\x00", "ä", "\xff\xfe",
		`"\x"`, "\"\t\"", strings.Repeat("a", 16), strings.Repeat("a", 17), `"` + strings.Repeat(`\\`, 16) + `"`, `a"b"`,
		"a\xc3", "\"\xc3\xa4\"", " a", `"a";p`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		r := rule(t, func(r *dedup.Rule) { r.MaxKeyLength = 16 })
		key, rejection := r.Key(func(string) []string { return []string{value} })
		want, ok := slowKey(value, 16)
		if (rejection == nil) != ok || string(key) != want {
			t.Errorf("Key(%q) = %q, %v; want %q, %v", value, key, rejection, want, ok)
		}
		if rejection != nil && (rejection.Reason != dedup.ReasonInvalidKey || rejection.Detail == "" || rejection.RetryAfter != 0) {
			t.Errorf("Key(%q) is rejected by %#v", value, rejection)
		}
		if rejection == nil {
			if again, _ := r.Key(func(string) []string { return []string{quote(string(key))} }); again != key {
				t.Errorf("%q in quotes is %q", key, again)
			}
		}
	})
}

// slowKey is what contract §3 says of a key, by tables instead of a parser: a value in
// quotes is any text whose quoted form it is.
func slowKey(value string, bound int) (key string, ok bool) {
	const printable = "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
	if strings.HasPrefix(value, `"`) {
		var parts []string
		for rest := value[1:]; rest != `"`; rest = rest[len(parts[len(parts)-1]):] {
			i := slices.IndexFunc(strings.Split(printable, ""), func(c string) bool {
				return c != `"` && c != `\` && strings.HasPrefix(rest, c)
			})
			switch {
			case i >= 0:
				parts = append(parts, rest[:1])
			case strings.HasPrefix(rest, `\"`), strings.HasPrefix(rest, `\\`):
				parts = append(parts, rest[:2])
			default:
				return "", false
			}
			key += parts[len(parts)-1][len(parts[len(parts)-1])-1:]
		}
		value = key
	}
	if value == "" || len(value) > bound {
		return "", false
	}
	for i := range len(value) {
		if !strings.Contains(printable, value[i:i+1]) {
			return "", false
		}
	}
	return value, true
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
