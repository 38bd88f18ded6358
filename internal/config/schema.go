package config

import _ "embed"

// schema is made of the Go types, their comments and their defaults by a test, which also
// keeps it current.
//
//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of a configuration, for editors.
func Schema() []byte { return schema }
