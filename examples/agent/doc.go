// Package agent is the test of a tool call of an agent: server.mjs, an MCP server in Node whose
// tool charges once however often it is called. README.md says how to use it and how to settle.
package agent
