package names

// Version is the version of what names an operation: the principal as a request or a token tells
// it, a client's key or an issued token, the key space or the route's name as the scope, the
// fingerprint of method, scope, path, headers and body, and how [Digest] joins them.
// Redis has the digests alone, so two versions that name one operation in two ways run it twice,
// and no script can see that. Tests hold each name to a fixed text (expect.SameName). A change of
// one either looks up both names while the older version may still run, or adds one here and has
// the CHANGELOG say that the release must not run mixed with those before it.
const Version = 2
