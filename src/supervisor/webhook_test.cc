// Webhook: fails if an alert does not arrive, if a server that is slow, absent or mad keeps the caller waiting or ends
// it, if a certificate that proves nothing is taken, or if the secret of the address is told.
#include "supervisor/webhook.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/test_folder.h"
#include "base/test_page.h"
#include "supervisor/http_post.h"
#include "supervisor/test_listener.h"

namespace moraine {
namespace {

using namespace testing;

constexpr const char* kOk = "HTTP/1.1 204 No Content\r\n\r\n";
constexpr double kLong = 60, kShort = 0.2;

WebhookAddress local(int port) { return {false, "127.0.0.1", port, "/secret?a=b"}; }

std::string refusal(const WebhookAddress& address, double seconds = kLong) {
  try {
    post_json(address, "{}", seconds);
  } catch (const Error& e) {
    EXPECT_EQ(count(e.what(), "secret"), 0) << e.what();
    return fmt::format("{} {}", code_name(e.code()), e.what());
  }
  return "taken";
}

TEST(Webhook, ReadsAddresses) {
  const WebhookAddress a = parse_webhook("https://hooks.example.com/services/T0/B0?x=1#part");
  EXPECT_TRUE(a.secure);
  EXPECT_EQ(a.host, "hooks.example.com");
  EXPECT_EQ(a.port, 443);
  EXPECT_EQ(a.path, "/services/T0/B0?x=1");
  const WebhookAddress b = parse_webhook("http://[::1]:8080");
  EXPECT_FALSE(b.secure);
  EXPECT_EQ(b.host, "::1");
  EXPECT_EQ(b.port, 8080);
  EXPECT_EQ(b.path, "/");
  EXPECT_EQ(parse_webhook("http://a?b").path, "/?b");
  EXPECT_EQ(parse_webhook("http://[::1]/x").port, 80);
}

TEST(Webhook, RefusesWhatIsNoAddress) {
  for (const char* url :
       {"", "hooks.example.com", "ftp://a/", "http://", "http:///x", "http://a:0/",
        "http://a:65536/", "http://a:x/", "http://a:/", "http://u:secret@a/", "http://[::1/",
        "http://[::1]x/", "http://[]/", "http://a/b c", "http://a/\r\nX: y", "http://a/\xc3\xa4"}) {
    try {
      parse_webhook(url);
      ADD_FAILURE() << url;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      EXPECT_EQ(count(e.what(), "secret"), 0);
    }
  }
}

TEST(Webhook, PostsWhatItWasGiven) {
  TestListener server(kOk);
  const std::string large = fmt::format("{{\"a\":\"{}\"}}", std::string(1 << 20, 'x'));
  {
    Webhook webhook(local(server.port()), kLong);
    webhook.post("{\"text\":\"first\"}");
    webhook.post(large);
    server.wait_for_requests(2);
  }
  const std::vector<std::string> got = server.requests();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_TRUE(got[0].starts_with("POST /secret?a=b HTTP/1.1\r\nHost: 127.0.0.1:")) << got[0];
  EXPECT_EQ(count(got[0], "\r\nContent-Length: 16\r\n"), 1) << got[0];
  EXPECT_TRUE(got[0].ends_with("\r\n\r\n{\"text\":\"first\"}")) << got[0];
  EXPECT_TRUE(got[1].ends_with(large));
}

TEST(Webhook, SaysWhyAServerDidNotTakeIt) {
  for (const char* answer :
       {"HTTP/1.1 500 Oh\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "rubbish\n", "\n",
        "HTTP/1.1\n", "HTTP/1.1 2\n", "\x16\x03\x01\x02\n"}) {
    TestListener server(answer);
    const std::string why = refusal(local(server.port()));
    EXPECT_EQ(count(why, "wanted 2xx"), 1) << why;
  }
  TestListener endless(std::string(100000, 'x'));
  EXPECT_EQ(count(refusal(local(endless.port())), "no HTTP"), 1);
  TestListener cut("HTTP/1.1 200");
  EXPECT_EQ(count(refusal(local(cut.port())), "hung up"), 1);
  TestListener silent("");
  EXPECT_EQ(count(refusal(local(silent.port()), kShort), "no answer in time"), 1);
  const int closed = TestListener(kOk).port();
  EXPECT_EQ(count(refusal(local(closed)), "refused"), 1);
}

// Thousands of alerts and a server that says nothing: the caller goes on, one event tells it.
TEST(Webhook, ASilentServerKeepsNobodyWaiting) {
  TestListener silent("");
  ::testing::internal::CaptureStderr();
  {
    Webhook webhook(local(silent.port()), kShort);
    for (int i = 0; i < 10000; ++i) webhook.post("{}");
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(log, "supervise.webhook_failed"), 1) << log;
  EXPECT_EQ(count(log, "secret"), 0) << log;
  EXPECT_EQ(count(log, "dropped=0"), 0) << log;
}

TEST(Webhook, ATlsServerMustProveWhoItIs) {
  if (std::system("openssl version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "NOT TESTED: there is no command openssl; https was not looked at";
  const TestFolder tree;
  const auto make = [&](const char* name, const char* of) {
    const std::string command = fmt::format(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=a "
        "-addext subjectAltName={} -keyout '{}.key' -out '{}.pem' 2>/dev/null",
        of, tree.file(name), tree.file(name));
    ASSERT_EQ(std::system(command.c_str()), 0);
  };
  make("right", "IP:127.0.0.1");
  make("other", "IP:127.0.0.9,DNS:else.where");
  make("named", "DNS:localhost");
  const auto answer = [&](const char* name, const char* host) {
    TestListener server(kOk, tree.file(name) + ".pem", tree.file(name) + ".key");
    ::setenv("SSL_CERT_FILE", (tree.file(name) + ".pem").c_str(), 1);
    return refusal({true, host, server.port(), "/"});
  };
  EXPECT_EQ(answer("right", "127.0.0.1"), "taken");
  EXPECT_EQ(answer("named", "localhost"), "taken");
  EXPECT_EQ(count(answer("other", "127.0.0.1"), "IP address mismatch"), 1);
  EXPECT_EQ(count(answer("other", "localhost"), "hostname mismatch"), 1);
  {
    TestListener server(kOk, tree.file("right.pem"), tree.file("right.key"));
    ::setenv("SSL_CERT_FILE", tree.file("none").c_str(), 1);
    EXPECT_EQ(count(refusal({true, "127.0.0.1", server.port(), "/"}), "self"), 1);
    EXPECT_TRUE(server.requests().empty());
  }
  ::unsetenv("SSL_CERT_FILE");
  TestListener plain("HTTP/1.1 400 Bad Request}\r\n\r\n"), silent("");
  EXPECT_NE(refusal({true, "127.0.0.1", plain.port(), "/"}, kShort), "taken");
  EXPECT_EQ(count(refusal({true, "127.0.0.1", silent.port(), "/"}, kShort), "in time"), 1);
}

}  // namespace
}  // namespace moraine
