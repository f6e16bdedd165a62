// Package grpcmw guards unary gRPC methods by one-use tokens and by keys of the client's own, as
// package idempotency guards HTTP handlers: a repeated call runs no method again and gets the
// recorded message or status.
//
// It is a module of its own, so that what does not use gRPC does not have it among its modules.
//
// A call has its key in the metadata idempotency-key, or an issued token in idempotency-token; of
// both the token counts. Its operation is the principal, the method and the key. The same key with
// another message is refused. Streams are not guarded.
//
// # What is recorded
//
// A method's message is recorded, and so is its status, also one that is an error: a repeat gets
// the same. The statuses Unauthenticated, PermissionDenied and ResourceExhausted mean "ask again",
// and free the key. An error that is no status, and the statuses Canceled, DeadlineExceeded and
// Unknown, leave it open whether the method had its effect: the operation is in doubt. So does a
// panic, which is passed on. A message over 1 MiB is not kept, and a repeat is told so.
//
// Unavailable is recorded as others are, so that gRPC's retry policy gets it again; a method that
// has done nothing calls [idempotency.Attempt.NotBegun], and the repeat runs. Header and trailer
// metadata of the method are not recorded. An interceptor that makes a status of a panic belongs
// before the guard: after it, that status is recorded.
//
// # The guard's own statuses
//
// Each has an errdetails.ErrorInfo of the domain coatcheck, whose reason is a code of the HTTP
// interface, and where it says when to ask again an errdetails.RetryInfo:
//
//	Aborted             idempotency-in-progress, idempotency-superseded: ask again
//	DeadlineExceeded    store-unavailable: the call's time was over, and nothing was done
//	FailedPrecondition  idempotency-outcome-unknown: in doubt; answer-not-kept; store-newer
//	InvalidArgument     idempotency-key-missing, -malformed, idempotency-payload-mismatch
//	NotFound            idempotency-token-unknown
//	Unavailable         store-unavailable: nothing was done
//	Unknown             outcome-unknown: the claim may stand, and nothing was run
//
// That of an operation in doubt has its name in the metadata operation: it is settled by that. Once
// it is settled as completed a repeat is answer-not-kept, since no message was recorded.
package grpcmw

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
)

// The metadata of a call. Replayed is "true" in the header of a recorded answer.
const (
	KeyMetadata   = "idempotency-key"
	TokenMetadata = "idempotency-token"
	Replayed      = "idempotent-replayed"
)

const maxKey = 255 // characters of printable ASCII

// Config sets up a guard. The zero value of each field means the default beside it.
type Config struct {
	// which methods are guarded, by their full names, /shop.Payments/Pay; nil = all unary ones but
	// those of grpc.health.v1.Health, by which probes ask without a key
	Guards func(method string) bool
	// a call without a key passes unguarded; false = it is InvalidArgument
	Optional bool
	// identifies the caller; nil = its authorization metadata, so that a renewed credential is
	// another caller. An error that is no status is Unauthenticated
	Principal func(context.Context) (string, error)
	// Policy, Lease, Retention, Scope and Ack of the claims; the rest is the guard's
	Options idempotency.ClaimOptions
}

// UnaryServerInterceptor makes a guard. The method's context has its attempt
// ([idempotency.FromContext]), survives the client's hang-up, and ends with the call's deadline, or
// with the cause ErrSuperseded when the claim is lost. It is safe for concurrent use.
func UnaryServerInterceptor(tokens *idempotency.Tokens, config Config) grpc.UnaryServerInterceptor {
	if config.Guards == nil {
		config.Guards = func(method string) bool { return !strings.HasPrefix(method, "/grpc.health.v1.Health/") }
	}
	if config.Principal == nil {
		config.Principal = authorization
	}
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, method grpc.UnaryHandler) (any, error) {
		if !config.Guards(info.FullMethod) {
			return method(ctx, message)
		}
		key, err := config.keyOf(ctx, tokens, info.FullMethod)
		if errors.Is(err, idempotency.ErrKeyMissing) && config.Optional {
			return method(ctx, message)
		}
		if err != nil {
			return nil, refusal(err)
		}
		options := config.Options
		if options.Fingerprint, err = fingerprint(info.FullMethod, message); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		options.Route = info.FullMethod
		call := &guarded{method: method, message: message}
		lasting, cancel := outliving(ctx)
		defer cancel()
		result, err := tokens.Do(lasting, key, options, call.run)
		switch {
		case err != nil && call.failed != nil:
			return nil, call.failed
		case err != nil:
			return nil, refusal(err)
		case result.Replayed:
			_ = grpc.SetHeader(ctx, metadata.Pairs(Replayed, "true")) // fails without a stream
			return replay(result)
		}
		return call.answer, call.status
	}
}

// authorization is the default principal.
func authorization(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) > 1 {
		return "", status.Error(codes.Unauthenticated, "one authorization belongs here")
	}
	if len(values) == 0 {
		return "", nil
	}
	return values[0], nil
}

func (c Config) keyOf(ctx context.Context, guard *idempotency.Tokens, method string) (idempotency.OperationKey, error) {
	tokens, keys := metadata.ValueFromIncomingContext(ctx, TokenMetadata), metadata.ValueFromIncomingContext(ctx, KeyMetadata)
	if len(tokens) == 1 {
		keys = nil
	}
	if len(tokens)+len(keys) == 0 {
		return idempotency.OperationKey{}, fmt.Errorf("%w: metadata %s or %s", idempotency.ErrKeyMissing, KeyMetadata, TokenMetadata)
	}
	if len(tokens)+len(keys) > 1 {
		return idempotency.OperationKey{}, fmt.Errorf("%w: one of %s and %s belongs in a call, once",
			idempotency.ErrKeyMalformed, KeyMetadata, TokenMetadata)
	}
	who, err := c.Principal(ctx)
	if err != nil {
		if _, is := status.FromError(err); is {
			return idempotency.OperationKey{}, err
		}
		return idempotency.OperationKey{}, status.Error(codes.Unauthenticated, err.Error())
	}
	if len(tokens) == 1 {
		if !names.Token.MatchString(tokens[0]) {
			return idempotency.OperationKey{}, fmt.Errorf("%w: %s is one token, 1 to %d characters, as it was issued",
				idempotency.ErrKeyMalformed, TokenMetadata, maxKey)
		}
		return idempotency.IssuedToken(who, tokens[0]), nil
	}
	if !isKey(keys[0]) {
		return idempotency.OperationKey{}, fmt.Errorf("%w: %s is 1 to %d characters of printable ASCII",
			idempotency.ErrKeyMalformed, KeyMetadata, maxKey)
	}
	guard.WarnNameless(ctx, who, method)
	return idempotency.ClientKey(who, method, keys[0]), nil
}

func isKey(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) > 0 && len(text) <= maxKey
}

// fingerprint is of the method and of the message in its deterministic form. The same program
// writes that alike; where clients of one service are of several languages the messages are read
// and written by the server, so that they are alike too.
func fingerprint(method string, message any) (string, error) {
	known, is := message.(proto.Message)
	if !is {
		return "", fmt.Errorf("the request is a %T and no protobuf message, so it cannot be guarded", message)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(known)
	if err != nil {
		return "", fmt.Errorf("the request cannot be written: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s,%s", len(method), method, text))
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// outliving is a context that ends with the deadline, and not with the client.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, has := ctx.Deadline(); has {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithCancel(context.WithoutCancel(ctx))
}
