// Package grpcmw guards unary gRPC methods by one-use tokens and by keys of the client's own, as
// package idempotency guards HTTP handlers: a repeated call runs no method again and gets the
// recorded message or status.
//
// It is a module of its own, so that what does not use gRPC does not have it among its modules.
//
// A call has its key in the metadata idempotency-key, in the form of the HTTP header (k and "k" are
// one key), or an issued token in idempotency-token; of both the token counts. Its operation is the
// principal, the method and the key. The same key with another message is refused: messages are
// compared field by field in the order of their numbers, those that this server does not know
// included. Streams are not guarded.
//
// # What is recorded
//
// A method's message is recorded, and so is its status, also one that is an error: a repeat gets
// the same. No status frees the key, since a method may pass on that of a call behind it: one that
// has done nothing calls [idempotency.Attempt.Release], and the repeat runs. An error that is no
// status, and the statuses Canceled, DeadlineExceeded, Unavailable and Unknown, leave it open
// whether the method had its effect: the operation is in doubt. So does a panic, which is passed
// on. A message over 1 MiB is not kept, and a repeat is told so.
//
// Header and trailer metadata of the method are not recorded. An interceptor that makes a status of
// a panic belongs before the guard: after it, that status is recorded.
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
// it is settled as completed a repeat is answer-not-kept, since no message was recorded. A resolver
// of [Config].Options ends doubts by itself, with the message of [Answer]; its operation has the
// method as its Route.
package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
)

// The metadata of a call. Replayed is "true" in the header of a recorded answer.
const (
	KeyMetadata   = "idempotency-key"
	TokenMetadata = "idempotency-token"
	Replayed      = "idempotent-replayed"
)

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
	// Policy, Lease, Retention, Scope, Ack and Resolve of the claims; the rest is the guard's
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

func (c Config) keyOf(ctx context.Context, guard *idempotency.Tokens, method string) (idempotency.Key, error) {
	tokens, keys := metadata.ValueFromIncomingContext(ctx, TokenMetadata), metadata.ValueFromIncomingContext(ctx, KeyMetadata)
	if len(tokens) == 1 {
		keys = nil
	}
	if len(tokens)+len(keys) == 0 {
		return idempotency.Key{}, fmt.Errorf("%w: metadata %s or %s", idempotency.ErrKeyMissing, KeyMetadata, TokenMetadata)
	}
	if len(tokens)+len(keys) > 1 {
		return idempotency.Key{}, fmt.Errorf("%w: one of %s and %s belongs in a call, once",
			idempotency.ErrKeyMalformed, KeyMetadata, TokenMetadata)
	}
	who, err := c.Principal(ctx)
	if err != nil {
		if _, is := status.FromError(err); is {
			return idempotency.Key{}, err
		}
		return idempotency.Key{}, status.Error(codes.Unauthenticated, err.Error())
	}
	if len(tokens) == 1 {
		if !names.Token.MatchString(tokens[0]) {
			return idempotency.Key{}, fmt.Errorf("%w: %s is one token, as it was issued", idempotency.ErrKeyMalformed, TokenMetadata)
		}
		return idempotency.IssuedToken(who, tokens[0]), nil
	}
	key, err := idempotency.OptionalKey(&http.Request{Header: http.Header{idempotency.KeyHeader: keys}})
	if err != nil {
		return idempotency.Key{}, err
	}
	guard.WarnNameless(ctx, who, method)
	return idempotency.Key{Principal: who, Scope: method, ID: key}, nil
}

// outliving is a context that ends with the deadline, and not with the client.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, has := ctx.Deadline(); has {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithCancel(context.WithoutCancel(ctx))
}
