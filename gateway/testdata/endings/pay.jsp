<%-- A payment on Tomcat, whose time can be over, and whose process can die. --%><%@
page contentType="text/plain" import="java.net.URI, jakarta.servlet.AsyncContext" trimDirectiveWhitespaces="true" %><%!

static void tell(String what, String key) throws Exception {
  URI.create(System.getenv("BOOK") + "/" + what + "/" + key).toURL().openStream().close();
}

static void die() throws Exception {
  new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start().waitFor();
}

// The thread goes on when the time is over.
static void late(AsyncContext work, String key) {
  work.setTimeout(1000);
  work.start(() -> {
    try {
      tell("wait", key);
      tell("ended", key);
      work.complete();
    } catch (Exception over) {
      // Tomcat has answered
    }
  });
}

%><%
String key = request.getHeader("Idempotency-Key"), event = "" + request.getHeader("X-Event");
tell("begun", key);
switch (event) {
case "slow":
  late(request.startAsync(), key);
  return;
case "gone":
  die();
case "thrown":
  throw new Exception("no money");
}
response.setStatus(201);
out.print("half of it, ");
if (event.equals("thrown late")) {
  out.flush();
  throw new Exception("no money");
}
tell("ended", key);
out.print("and the rest");
%>
