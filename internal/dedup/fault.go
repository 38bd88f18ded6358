package dedup

// A Fault is one thing that is wrong with a configuration. Each package checks its own
// part with a pure Validate method; internal/config adds file, line and column.
type Fault struct {
	// Path leads to the field from where the checking package stands, in the
	// configuration's names: "lease", "redis.url", "routes[2].path".
	Path string
	// Message says what is wrong and what would be right, without the value of a secret.
	Message string
}
