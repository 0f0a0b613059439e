#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <rag_retrieve.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace errors_tests {

namespace rag = rag_retrieve;

namespace {

rag::result<int> half_of(int number) {
  if (number % 2 != 0) {
    return rag::error(rag::errc::invalid_argument, "half_of: 3 is odd, expected an even number");
  }
  return number / 2;
}

/// The error that a call throws, or nothing.
template <class Call>
std::optional<rag::error> thrown_by(const Call& call) {
  try {
    call();
  } catch (const rag::error& failure) {
    return failure;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("errors: a result holds a value or an error, and says which") {
  const rag::result<int> good = half_of(8);
  CHECK(good.ok());
  CHECK(static_cast<bool>(good));
  CHECK(good.value() == 4);
  CHECK(*good == 4);

  const rag::result<int> bad = half_of(3);
  CHECK_FALSE(bad.ok());
  CHECK_FALSE(static_cast<bool>(bad));
  CHECK(bad.failure().code() == rag::errc::invalid_argument);
  CHECK(bad.failure().message() == "half_of: 3 is odd, expected an even number");
}

TEST_CASE("errors: value() throws the error that stands in the value's place") {
  const auto failure = thrown_by([] { static_cast<void>(half_of(3).value()); });
  REQUIRE(failure);
  CHECK(failure->code() == rag::errc::invalid_argument);
  CHECK(failure->message() == "half_of: 3 is odd, expected an even number");

  rag::result<std::string> kept(rag::error(rag::errc::not_found, "nothing"));
  CHECK(thrown_by([&] { static_cast<void>(kept.value()); }));
  CHECK(thrown_by([&] { static_cast<void>(*kept); }));
  CHECK(thrown_by([&] { static_cast<void>(kept->size()); }));
  CHECK(thrown_by([&] { static_cast<void>(std::as_const(kept)->size()); }));
}

TEST_CASE("errors: an error is a std::exception and its copies keep code and sentence") {
  rag::error copy(rag::errc::callback_failed, "");
  {
    const rag::error original(rag::errc::not_finite, "a sentence");
    copy = original;
  }
  const std::exception& base = copy;
  CHECK(std::string(base.what()) == "a sentence");
  CHECK(copy.code() == rag::errc::not_finite);
}

TEST_CASE("errors: the numbers of the codes are stable") {
  // Programs log them; a code may be added, a number never changes.
  CHECK(static_cast<int>(rag::errc::invalid_argument) == 1);
  CHECK(static_cast<int>(rag::errc::duplicate_id) == 2);
  CHECK(static_cast<int>(rag::errc::dimension_mismatch) == 3);
  CHECK(static_cast<int>(rag::errc::not_finite) == 4);
  CHECK(static_cast<int>(rag::errc::model_mismatch) == 5);
  CHECK(static_cast<int>(rag::errc::stale_revision) == 6);
  CHECK(static_cast<int>(rag::errc::not_found) == 7);
  CHECK(static_cast<int>(rag::errc::wrong_type) == 8);
  CHECK(static_cast<int>(rag::errc::bad_counter) == 9);
  CHECK(static_cast<int>(rag::errc::embedder_failed) == 10);
  CHECK(static_cast<int>(rag::errc::reranker_failed) == 11);
  CHECK(static_cast<int>(rag::errc::permission_failed) == 12);
  CHECK(static_cast<int>(rag::errc::callback_failed) == 13);
}

TEST_CASE("errors: a result moves its value out and holds what cannot be copied") {
  const auto make = []() -> rag::result<std::unique_ptr<int>> { return std::make_unique<int>(7); };
  const std::unique_ptr<int> taken = make().value();
  REQUIRE(taken);
  CHECK(*taken == 7);

  rag::result<std::vector<int>> list(std::vector<int>{1, 2});
  list->push_back(3);
  CHECK(list.value().size() == 3);
  CHECK(std::move(list).value() == std::vector<int>{1, 2, 3});
}

TEST_CASE("errors: a result is made of whatever becomes its value") {
  const auto number = []() -> rag::result<double> { return 3; };
  CHECK(number().value() == doctest::Approx(3.0));
  const auto text = []() -> rag::result<std::string> { return "three"; };
  CHECK(text().value() == "three");
  static_assert(!std::is_constructible_v<rag::result<std::string>, std::vector<int>>);
  static_assert(!std::is_convertible_v<rag::result<int>, bool>);  // only where a bool is asked for
}

TEST_CASE("errors: a result without a value is success or an error") {
  const rag::result<void> good;
  CHECK(good.ok());
  CHECK_NOTHROW(good.value());
  const rag::result<void> bad(rag::error(rag::errc::stale_revision, "too old"));
  CHECK_FALSE(static_cast<bool>(bad));
  CHECK(bad.failure().code() == rag::errc::stale_revision);
  const auto failure = thrown_by([&] { bad.value(); });
  REQUIRE(failure);
  CHECK(failure->message() == "too old");
}

TEST_CASE("errors: whatever a callback throws becomes an error that names the callback") {
  const auto run = [](auto&& body) {
    return rag::detail::guarded(rag::errc::embedder_failed, "embedder 'm'", body);
  };
  CHECK(run([] { return 5; }).value() == 5);
  CHECK(run([]() -> rag::result<int> { return 6; }).value() == 6);

  const auto exception = run([]() -> int { throw std::runtime_error("no connection"); });
  REQUIRE_FALSE(exception.ok());
  CHECK(exception.failure().code() == rag::errc::embedder_failed);
  CHECK(exception.failure().message() == "embedder 'm': no connection");

  const auto number = run([]() -> int { throw 42; });
  REQUIRE_FALSE(number.ok());
  CHECK(number.failure().code() == rag::errc::embedder_failed);
  CHECK(number.failure().message().find("embedder 'm'") == 0);
}

TEST_CASE("errors: an error that a callback throws or returns itself passes unchanged") {
  const rag::error own(rag::errc::not_found, "no such model");
  const auto returned = rag::detail::guarded(rag::errc::embedder_failed, "embedder",
                                             [&]() -> rag::result<int> { return own; });
  REQUIRE_FALSE(returned.ok());
  CHECK(returned.failure().code() == rag::errc::not_found);
  CHECK(returned.failure().message() == "no such model");
  const auto thrown =
      rag::detail::guarded(rag::errc::embedder_failed, "embedder", [&]() -> int { throw own; });
  REQUIRE_FALSE(thrown.ok());
  CHECK(thrown.failure().code() == rag::errc::not_found);
}

TEST_CASE("errors: a name in a sentence is short and holds no control bytes") {
  CHECK(rag::detail::in_quotes("E42") == "'E42'");
  CHECK(rag::detail::in_quotes("") == "''");
  CHECK(rag::detail::in_quotes("a\nb'c\x7F") == "'a?b?c?'");
  CHECK(rag::detail::in_quotes(std::string_view("a\0b", 3)) == "'a?b'");
  CHECK(rag::detail::in_quotes(std::string(64, 'x')) == "'" + std::string(64, 'x') + "'");
  CHECK(rag::detail::in_quotes(std::string(65, 'x')) == "'" + std::string(64, 'x') + "...'");
  CHECK(rag::detail::text_of(0) == "0");
  CHECK(rag::detail::text_of(1234567) == "1234567");
}

TEST_CASE("errors: a long name is cut between characters, so that the sentence stays UTF-8") {
  const std::string name = std::string(63, 'x') + "\xC3\xA9" + "y";  // the cut falls inside the e
  CHECK(rag::is_valid_utf8(rag::detail::in_quotes(name)));
}

TEST_CASE("errors: NaN and infinities are told from numbers by their bits") {
  using limits = std::numeric_limits<float>;
  using wide = std::numeric_limits<double>;
  for (float value : {0.0F, -0.0F, 1.5F, (limits::max)(), limits::lowest(), limits::denorm_min()}) {
    CHECK(rag::detail::is_finite(value));
  }
  for (float value : {limits::infinity(), -limits::infinity(), limits::quiet_NaN()}) {
    CHECK_FALSE(rag::detail::is_finite(value));
  }
  for (double value : {0.0, -1.5, (wide::max)(), wide::denorm_min()}) {
    CHECK(rag::detail::is_finite(value));
  }
  for (double value : {wide::infinity(), -wide::infinity(), wide::quiet_NaN()}) {
    CHECK_FALSE(rag::detail::is_finite(value));
  }
}

TEST_CASE("tools: the best of a list do not depend on the order in which they came") {
  const auto larger = [](int a, int b) { return a > b; };
  for (std::size_t count : {0U, 1U, 3U, 6U, 7U, 100U}) {
    std::vector<int> up{1, 2, 3, 4, 5, 6};
    std::vector<int> down{6, 5, 4, 3, 2, 1};
    rag::detail::keep_best(up, count, larger);
    rag::detail::keep_best(down, count, larger);
    const std::vector<int> all{6, 5, 4, 3, 2, 1};
    const auto kept = static_cast<std::ptrdiff_t>((std::min)(count, all.size()));
    const std::vector<int> expected(all.begin(), all.begin() + kept);
    CHECK(up == expected);
    CHECK(down == expected);
  }
}

TEST_CASE("tools: a set of rows holds what was put in, across words of 64") {
  rag::row_set none;
  CHECK(none.size() == 0);
  CHECK(none.count() == 0);
  CHECK_FALSE(none.contains(0));

  rag::row_set some(130);
  for (std::size_t row : {0U, 63U, 64U, 127U, 128U, 129U}) some.insert(row);
  CHECK(some.count() == 6);
  CHECK(some.contains(64));
  CHECK_FALSE(some.contains(65));
  CHECK_FALSE(some.contains(130));
  CHECK_FALSE(some.contains(static_cast<std::size_t>(-1)));
  some.remove(64);
  some.remove(64);
  some.insert(63);
  CHECK(some.count() == 5);
  CHECK_FALSE(some.contains(64));

  for (std::size_t size : {0U, 1U, 63U, 64U, 65U, 200U}) {
    const rag::row_set all = rag::row_set::all(size);
    CHECK(all.count() == size);
    CHECK_FALSE(all.contains(size));
  }
}

}  // namespace errors_tests
