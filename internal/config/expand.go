package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// expand replaces ${VAR} and ${VAR:-default}; $${ stands for ${. What a variable holds
// is not expanded again. The errors name variables, never their values.
func expand(text string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), nil
		}
		if plain, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(plain + "${")
			text = rest
			continue
		}
		out.WriteString(before)
		reference, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.New("${ without its }; write ${NAME}, ${NAME:-default}, or $${ for the two characters themselves")
		}
		value, err := variable(reference, lookup)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = after
	}
}

// variable is the value of what stands between the braces.
func variable(reference string, lookup func(string) (string, bool)) (string, error) {
	name, fallback, hasDefault := strings.Cut(reference, ":-")
	if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name) {
		return "", errors.New("not a variable between ${ and }; write ${NAME}, ${NAME:-default}, or $${ for the two characters themselves")
	}
	value, set := lookup(name)
	switch {
	case hasDefault && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("the variable %s is not set; set it, or write ${%s:-default}", name, name)
	}
	return value, nil
}
