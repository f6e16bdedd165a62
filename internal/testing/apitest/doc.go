// Package apitest compares what a server answers with the OpenAPI document, for tests. Stand a
// [RoundTripper] between a test and the server, or a [Handler] around the server, and every
// exchange is looked at: the answer always, and the request where the answer says that it was good.
//
// An answer is at fault if its status, its media type, a header or a field is not in the document
// for that operation, or not of the kind that stands there. A path or a method that is not in the
// document has to be answered with the problem for that.
//
// The document is read once. Exchanges then cost microseconds: compiled schemas stay.
package apitest
