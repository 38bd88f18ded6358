// Package config turns a YAML file, the environment and the command line's flags into
// one checked Config, and says everything that is wrong with them at once, each fault
// with its place.
//
// Precedence: flag, then environment, then file, then default. Every package owns its
// section, its defaults and its checks; this one only reads and aggregates. It opens
// no connection, reads no file but the one it is given, and changes nothing.
//
// # The file
//
// One YAML document, UTF-8. Anchors, aliases and merge keys work; tags and further
// documents are refused, and so are unknown keys and keys given twice.
//
//   - Durations are Go's and need a unit (24h, 500ms); sizes are bytes or have a unit
//     (64KiB); true and false are the only booleans.
//   - A section without a value (`server:` and nothing below) keeps its defaults. A
//     setting without a value (`ttl:`) is a fault: nobody can tell what was meant.
//   - `${VAR}` and `${VAR:-default}` are expanded inside values, after the file was
//     parsed, so that a variable can't add keys. The default is used when VAR is unset
//     or empty; an unset VAR without one is a fault. `$${` stands for a literal `${`;
//     every other `$` is itself (`/{$}` is a path pattern).
//   - `defaults` sets any field of a route but name, methods, path and host; each
//     route starts from a copy. A list in a route replaces that of defaults.
//
// # The environment
//
// IDEMPROXY_ + the path in capitals, joined by `_`: IDEMPROXY_UPSTREAM_URL. Lists are
// separated by commas. The routes of the file are reached by their index
// (IDEMPROXY_ROUTES_0_TTL). A variable that is set but empty is the empty value (for a
// list: no elements). Variables that name no setting are ignored, because orchestrators
// inject their own (IDEMPROXY_SERVICE_HOST for a Service named idemproxy).
package config
