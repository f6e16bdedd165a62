// Package config is the settings of the service and the gateway, and the sources of their values.
//
// A [Setting] is one line of a table: its name, default, unit, meaning and bounds stand there and
// nowhere else. The table makes the flag, the environment variable, the key in the file, the help
// and docs/configuration.md. [ServiceSettings] and [GatewaySettings] are the tables; a command
// makes its own with the same kinds ([Text], [Number], [Span], …).
//
// [Sources] reads a table: a flag is taken over the environment, that over the file (--config),
// and that over the default. What a command is told for one call are its arguments: flags without
// a variable, which stand in no file ([Sources.Bind]). Values are parsed after all of them were
// found, so that an error holds every fault at once, with its place. A setting hides its own
// secrets ([Setting.Redact]).
//
// [Reloading] reads the same sources again while the process runs, and takes what can change:
// settings that are [Hot], and files that they name, such as [Certificates].
//
// A Sources is one goroutine's until it is loaded; what is loaded may be read by many. Nothing here
// knows of commands, and nothing prints.
package config
