package store

import "idemproxy/internal/dedup"

// WarningsAmongReplicas returns what is probably not meant where several replicas are
// likely; paths stand relative to the section.
func (c Config) WarningsAmongReplicas() []dedup.Fault {
	if c.Type != "memory" && c.Type != "file" {
		return nil
	}
	return []dedup.Fault{{Path: "type", Message: "is " + c.Type + ", which one replica has for itself, and this is Kubernetes: a retry that reaches another replica, or this one after it was moved, is executed again; use redis or postgres"}}
}
