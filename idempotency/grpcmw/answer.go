package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// guarded is one call of a method under a claim.
type guarded struct {
	method  grpc.UnaryHandler
	message any

	answer any
	status error // that is recorded
	failed error // that is not: in doubt, or the method has stated that it never began
}

// run calls the method, and returns what is recorded: a google.rpc.Status, whose one detail is the
// message where the status is OK.
func (g *guarded) run(ctx context.Context, _ *idempotency.Attempt) ([]byte, error) {
	answer, err := g.method(ctx, g.message)
	if err == nil {
		return g.recorded(answer)
	}
	known, is := status.FromError(err)
	switch {
	case !is, known.Code() == codes.Canceled, known.Code() == codes.DeadlineExceeded, known.Code() == codes.Unavailable,
		known.Code() == codes.Unknown:
		g.failed = err
		return nil, err
	}
	g.status = err
	return proto.Marshal(known.Proto())
}

func (g *guarded) recorded(answer any) ([]byte, error) {
	message, is := answer.(proto.Message)
	if !is {
		g.failed = status.Errorf(codes.Internal, "the answer is a %T and no protobuf message, so it cannot be recorded", answer)
		return nil, g.failed
	}
	recorded, err := Answer(message)
	if err != nil {
		g.failed = status.Error(codes.Internal, fmt.Sprintf("the answer cannot be written: %v", err))
		return nil, g.failed
	}
	g.answer = answer
	return recorded.Body, nil
}

// Answer is a message as it is recorded: what a resolver says with [idempotency.DecisionHappened],
// so that repeats get the message.
func Answer(message proto.Message) (idempotency.Answer, error) {
	packed, err := anypb.New(message)
	if err != nil {
		return idempotency.Answer{}, err
	}
	body, err := proto.Marshal(&spb.Status{Details: []*anypb.Any{packed}})
	return idempotency.Answer{Status: http.StatusOK, Body: body}, err
}

// replay is the recorded answer.
func replay(result idempotency.Result) (any, error) {
	if result.NotKept {
		return nil, withReason(codes.FailedPrecondition, "answer-not-kept",
			"the first call was answered with more than 1 MiB, which was not kept", nil, 0)
	}
	var recorded spb.Status
	if err := proto.Unmarshal(result.Value, &recorded); err != nil || len(result.Value) == 0 {
		return nil, withReason(codes.FailedPrecondition, "answer-not-kept",
			"the first call is done, as another client or an operator has recorded, and its message is not known", nil, 0)
	}
	if recorded.GetCode() != int32(codes.OK) {
		return nil, status.FromProto(&recorded).Err()
	}
	if len(recorded.GetDetails()) != 1 {
		return nil, status.Error(codes.Internal, "the recorded answer has no message")
	}
	message, err := recorded.GetDetails()[0].UnmarshalNew()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the recorded message cannot be read: %v", err)
	}
	return message, nil
}

// statuses are the guard's own, by the code of the HTTP interface.
var statuses = map[idempotency.ProblemCode]codes.Code{
	"idempotency-in-progress": codes.Aborted, "idempotency-superseded": codes.Aborted,
	"idempotency-outcome-unknown": codes.FailedPrecondition, "store-newer": codes.FailedPrecondition,
	"idempotency-key-missing": codes.InvalidArgument, "idempotency-key-malformed": codes.InvalidArgument,
	"idempotency-payload-mismatch": codes.InvalidArgument,
	"idempotency-token-unknown":    codes.NotFound, "operation-unknown": codes.NotFound,
	storeUnavailable: codes.Unavailable, "outcome-unknown": codes.Unknown,
}

const storeUnavailable = "store-unavailable"

// refusal is the status for an error of the guard.
func refusal(err error) error {
	if known, is := status.FromError(err); is {
		return known.Err()
	}
	problem, _ := idempotency.Problem(err)
	code, listed := statuses[problem.Code]
	if !listed {
		code = codes.Internal
	}
	text := problem.Title
	if problem.Detail != "" {
		text += ": " + problem.Detail
	}
	if code != codes.Unknown && errors.Is(err, context.DeadlineExceeded) {
		return withReason(codes.DeadlineExceeded, storeUnavailable, "nothing was done: the time of the call is over", nil, 0)
	}
	var facts map[string]string
	if problem.Operation != "" {
		facts = map[string]string{"operation": problem.Operation}
	}
	return withReason(code, string(problem.Code), text, facts, redisstore.RetryAfter(err))
}

// withReason is a status with its reason, and when to ask again, in its details.
func withReason(code codes.Code, reason, text string, facts map[string]string, after time.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: "coatcheck", Metadata: facts}}
	if after > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	}
	whole, err := status.New(code, text).WithDetails(details...)
	if err != nil { // it has a code that is an error
		panic(err)
	}
	return whole.Err()
}
