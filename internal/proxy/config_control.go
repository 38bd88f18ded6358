package proxy

import (
	"net"

	"idemproxy/internal/dedup"
)

// ControlConfig is the listener for operators: keys, status, drain, reload, log level.
type ControlConfig struct {
	// Listen is the address, on loopback unless there is a token_file; empty means no
	// control listener.
	Listen string `yaml:"listen"`
	// TokenFile holds the token that every request must then carry, 16 characters or more.
	// Without it nothing can be changed, and no recorded answer is shown. A new token is
	// taken up without a restart.
	TokenFile string `yaml:"token_file"`
	// PProf adds Go's profiles below /debug/pprof/.
	PProf bool `yaml:"pprof"`
}

// DefaultControlConfig has the defaults of the control section.
func DefaultControlConfig() ControlConfig { return ControlConfig{} }

// Validate returns what is wrong with the control section.
func (c ControlConfig) Validate() []dedup.Fault {
	if c.Listen == "" {
		var faults []dedup.Fault
		if c.TokenFile != "" {
			faults = append(faults, dedup.Fault{Path: "token_file", Message: "has no effect without control.listen"})
		}
		if c.PProf {
			faults = append(faults, dedup.Fault{Path: "pprof", Message: "has no effect without control.listen"})
		}
		return faults
	}
	if faults := address("listen", c.Listen); len(faults) > 0 {
		return faults
	}
	if host, _, _ := net.SplitHostPort(c.Listen); c.TokenFile == "" && !isLoopback(host) {
		return []dedup.Fault{{Path: "listen", Message: "must be on loopback, such as 127.0.0.1:9091, or have control.token_file beside it: whoever reaches it sees what goes on"}}
	}
	return nil
}

// isLoopback reports whether a host is this machine and reachable from nowhere else.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
