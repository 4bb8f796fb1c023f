"""The queries of the LDBC Social Network Benchmark: BI 1 to 20 and Interactive complex 1 to 14.

The texts are written from the specification, in SQL that DuckDB takes, too. They are queries over
the views of `VIEWS`. A name in braces is a parameter, which `tests.generators.snb` chooses. A query
with a LIMIT orders its rows by a key, so that its answer is unique. Results on generated rows are
no benchmark results.

Reference: Szárnyas et al. The LDBC Social Network Benchmark: Business Intelligence Workload.
PVLDB 16(4), 2022. Erling et al. The LDBC Social Network Benchmark: Interactive Workload. SIGMOD
2015.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BI", "INTERACTIVE", "QUERIES", "VIEWS"]

#: The views that queries read, in an order in which they can be created.
VIEWS: Final = {
    "Knows": """
        SELECT Person1Id AS a, Person2Id AS b, creationDate FROM Person_knows_Person
        UNION ALL SELECT Person2Id, Person1Id, creationDate FROM Person_knows_Person""",
    "Message": """
        WITH RECURSIVE thread(id, rootId, forumId, language) AS (
            SELECT id, id, ContainerForumId, language FROM Post
            UNION ALL
            SELECT c.id, t.rootId, t.forumId, t.language
            FROM thread t JOIN Comment c ON coalesce(c.ParentPostId, c.ParentCommentId) = t.id)
        SELECT p.id, p.creationDate, p.content, p.imageFile, p.length, p.CreatorPersonId,
            p.LocationCountryId, NULL AS parentId, t.rootId, t.forumId, t.language
        FROM Post p JOIN thread t USING (id)
        UNION ALL
        SELECT c.id, c.creationDate, c.content, NULL, c.length, c.CreatorPersonId,
            c.LocationCountryId, coalesce(c.ParentPostId, c.ParentCommentId),
            t.rootId, t.forumId, t.language
        FROM Comment c JOIN thread t USING (id)""",
    "Message_hasTag": """
        SELECT PostId AS messageId, TagId FROM Post_hasTag_Tag
        UNION ALL SELECT CommentId, TagId FROM Comment_hasTag_Tag""",
    "Likes": """
        SELECT PersonId, PostId AS messageId, creationDate FROM Person_likes_Post
        UNION ALL SELECT PersonId, CommentId, creationDate FROM Person_likes_Comment""",
    "Resident": """
        SELECT p.id AS personId, ci.id AS cityId, ci.name AS city, co.id AS countryId,
            co.name AS country
        FROM Person p JOIN City ci ON ci.id = p.LocationCityId
        JOIN Country co ON co.id = ci.PartOfCountryId""",
    # Friends of each person, and friends of friends, without the person.
    "Circle": """
        SELECT a AS personId, b AS friendId FROM Knows
        UNION SELECT k.a, l.b FROM Knows k JOIN Knows l ON l.a = k.b WHERE k.a <> l.b""",
}

BI: Final = {
    # Posting summary.
    1: """
        SELECT messageYear, isComment, lengthCategory, count(*) AS messageCount,
            avg(length) AS averageLength, sum(length) AS sumLength,
            count(*) / (SELECT count(*) FROM Message WHERE creationDate < {date}) AS share
        FROM (SELECT extract(year FROM creationDate) AS messageYear, length,
                parentId IS NOT NULL AS isComment,
                CASE WHEN length < 40 THEN 0 WHEN length < 80 THEN 1
                     WHEN length < 160 THEN 2 ELSE 3 END AS lengthCategory
              FROM Message WHERE creationDate < {date} AND content IS NOT NULL)
        GROUP BY ALL
        ORDER BY messageYear DESC, isComment, lengthCategory""",
    # Tag evolution.
    2: """
        WITH wanted AS (
            SELECT t.id, t.name FROM Tag t JOIN TagClass c ON c.id = t.TypeTagClassId
            WHERE c.name = {tag_class}),
        counted AS (
            SELECT h.TagId,
                count(DISTINCT m.id) FILTER (m.creationDate < {date} + INTERVAL 100 DAY) AS n1,
                count(DISTINCT m.id) FILTER (m.creationDate >= {date} + INTERVAL 100 DAY) AS n2
            FROM Message m JOIN Message_hasTag h ON h.messageId = m.id
            WHERE m.creationDate >= {date} AND m.creationDate < {date} + INTERVAL '200 days'
            GROUP BY h.TagId)
        SELECT w.name AS "tag.name", coalesce(n1, 0) AS count1, coalesce(n2, 0) AS count2,
            abs(coalesce(n1, 0) - coalesce(n2, 0)) AS diff
        FROM wanted w LEFT JOIN counted c ON c.TagId = w.id
        ORDER BY diff DESC, w.name LIMIT 100""",
    # Popular topics in a country.
    3: """
        SELECT f.id AS "forum.id", f.title AS "forum.title", f.creationDate,
            f.ModeratorPersonId AS "person.id", count(DISTINCT m.id) AS messageCount
        FROM Forum f
        JOIN Resident r ON r.personId = f.ModeratorPersonId AND r.country = {country}
        JOIN Message m ON m.forumId = f.id
        JOIN Message_hasTag h ON h.messageId = m.id
        JOIN Tag t ON t.id = h.TagId
        JOIN TagClass c ON c.id = t.TypeTagClassId AND c.name = {tag_class}
        GROUP BY f.id, f.title, f.creationDate, f.ModeratorPersonId
        ORDER BY messageCount DESC, f.id LIMIT 20""",
    # Top message creators by country.
    4: """
        WITH sizes AS (
            SELECT m.ForumId, r.countryId, count(*) AS members
            FROM Forum_hasMember_Person m JOIN Resident r USING (personId)
            JOIN Forum f ON f.id = m.ForumId AND f.creationDate > {date}
            GROUP BY m.ForumId, r.countryId),
        top_forums AS (
            SELECT ForumId AS id, max(members) AS size FROM sizes GROUP BY ForumId
            ORDER BY size DESC, id LIMIT 5)
        SELECT p.id, p.firstName, p.lastName, p.creationDate, count(m.id) AS messageCount
        FROM Person p
        LEFT JOIN Message m ON m.CreatorPersonId = p.id AND m.creationDate > {date}
            AND m.forumId IN (SELECT id FROM top_forums)
        WHERE EXISTS (SELECT 1 FROM top_forums t
            JOIN Forum_hasMember_Person h ON h.ForumId = t.id WHERE h.PersonId = p.id)
        GROUP BY p.id, p.firstName, p.lastName, p.creationDate
        ORDER BY messageCount DESC, p.id LIMIT 100""",
    # Most active posters in a given topic.
    5: """
        WITH active AS (
            SELECT m.CreatorPersonId AS personId, count(DISTINCT m.id) AS messages,
                count(DISTINCT c.id) AS replies,
                count(DISTINCT l.messageId || ' ' || l.PersonId) AS likes
            FROM Tag t JOIN Message_hasTag h ON h.TagId = t.id
            JOIN Message m ON m.id = h.messageId
            LEFT JOIN Comment c ON coalesce(c.ParentPostId, c.ParentCommentId) = m.id
            LEFT JOIN Likes l ON l.messageId = m.id
            WHERE t.name = {tag} GROUP BY 1)
        SELECT personId AS "person.id", replies, likes, messages,
            messages + 2 * replies + 10 * likes AS score
        FROM active ORDER BY score DESC, personId LIMIT 100""",
    # Most authoritative users on a given topic.
    6: """
        WITH likers AS (
            SELECT DISTINCT m.CreatorPersonId AS person1, l.PersonId AS person2
            FROM Tag t, Message_hasTag h, Message m
            LEFT JOIN Likes l ON l.messageId = m.id
            WHERE t.name = {tag} AND h.TagId = t.id AND h.messageId = m.id),
        popularity AS (
            SELECT m.CreatorPersonId AS personId, count(*) AS score
            FROM Message m JOIN Likes l ON l.messageId = m.id GROUP BY m.CreatorPersonId)
        SELECT person1 AS "person1.id", sum(coalesce(score, 0)) AS authorityScore
        FROM likers LEFT JOIN popularity ON personId = person2
        GROUP BY person1 ORDER BY authorityScore DESC, person1 LIMIT 100""",
    # Related topics.
    7: """
        SELECT other.name AS "relatedTag.name", count(*) AS "count"
        FROM Tag t
        JOIN Message_hasTag h ON h.TagId = t.id
        JOIN Comment c ON coalesce(c.ParentCommentId, c.ParentPostId) = h.messageId
        JOIN Message_hasTag i ON i.messageId = c.id
        JOIN Tag other ON other.id = i.TagId
        LEFT JOIN Message_hasTag same ON same.messageId = c.id AND same.TagId = h.TagId
        WHERE same.messageId IS NULL AND t.name = {tag}
        GROUP BY other.name ORDER BY "count" DESC, other.name LIMIT 100""",
    # Central person for a tag.
    8: """
        WITH interested AS (
            SELECT i.PersonId FROM Person_hasInterest_Tag i JOIN Tag t ON t.id = i.TagId
            WHERE t.name = {tag}),
        wrote AS (
            SELECT m.CreatorPersonId AS PersonId, count(*) AS messages
            FROM Tag t JOIN Message_hasTag h ON h.TagId = t.id JOIN Message m ON m.id = h.messageId
            WHERE t.name = {tag} AND {date} < m.creationDate AND m.creationDate < {end_date}
            GROUP BY 1),
        scored AS (
            SELECT PersonId,
                CASE WHEN i.PersonId IS NULL THEN 0 ELSE 100 END + coalesce(messages, 0) AS score
            FROM interested i FULL JOIN wrote w USING (PersonId))
        SELECT s.PersonId AS "person.id", s.score, coalesce(sum(f.score), 0) AS friendsScore
        FROM scored s LEFT JOIN Knows k ON k.a = s.PersonId
        LEFT JOIN scored f ON f.PersonId = k.b
        GROUP BY s.PersonId, s.score
        ORDER BY s.score + coalesce(sum(f.score), 0) DESC, s.PersonId LIMIT 100""",
    # Top thread initiators.
    9: """
        SELECT p.id, p.firstName, p.lastName, count(DISTINCT m.rootId) AS threadCount,
            count(DISTINCT m.id) AS messageCount
        FROM Person p
        LEFT JOIN Post o ON o.CreatorPersonId = p.id
            AND o.creationDate BETWEEN {date} AND {end_date}
        LEFT JOIN Message m ON m.rootId = o.id AND m.creationDate BETWEEN {date} AND {end_date}
        GROUP BY p.id, p.firstName, p.lastName
        ORDER BY messageCount DESC, p.id LIMIT 100""",
    # Experts in social circle.
    10: """
        WITH RECURSIVE reached(id, hops) AS (
            SELECT {person}, 0
            UNION SELECT k.b, r.hops + 1 FROM reached r JOIN Knows k ON k.a = r.id
            WHERE r.hops < 3),
        experts AS (
            SELECT id FROM reached JOIN Resident ON personId = id WHERE country = {country}
            GROUP BY id HAVING min(hops) BETWEEN 2 AND 3),
        relevant AS (
            SELECT DISTINCT e.id AS personId, m.id AS messageId
            FROM experts e JOIN Message m ON m.CreatorPersonId = e.id
            JOIN Message_hasTag h ON h.messageId = m.id JOIN Tag t ON t.id = h.TagId
            JOIN TagClass c ON c.id = t.TypeTagClassId WHERE c.name = {tag_class})
        SELECT personId AS "person.id", t.name AS "tag.name", count(*) AS messageCount
        FROM relevant JOIN Message_hasTag h USING (messageId) JOIN Tag t ON t.id = h.TagId
        GROUP BY 1, 2 ORDER BY 3 DESC, 2, 1 LIMIT 100""",
    # Friend triangles.
    11: """
        WITH friends AS (
            SELECT k.a, k.b FROM Knows k JOIN Resident r ON r.personId = k.a
            WHERE r.country = {country} AND k.creationDate BETWEEN {date} AND {end_date})
        SELECT count(*) AS triangles
        FROM friends x JOIN friends y ON y.a = x.b JOIN friends z ON z.a = y.b AND z.b = x.a
        WHERE x.a < y.a AND y.a < z.a""",
    # How many persons have a given number of messages.
    12: """
        WITH written AS (
            SELECT p.id, count(m.id) AS messageCount
            FROM Person p LEFT JOIN Message m ON m.CreatorPersonId = p.id
                AND m.content IS NOT NULL AND m.length < {length}
                AND m.creationDate > {date} AND m.language IN {languages}
            GROUP BY p.id)
        SELECT messageCount, count(*) AS personCount FROM written
        GROUP BY messageCount ORDER BY personCount DESC, messageCount DESC""",
    # Zombies in a country.
    13: """
        WITH zombies AS (
            SELECT p.id
            FROM Person p JOIN Resident r ON r.personId = p.id
            LEFT JOIN Message m ON m.CreatorPersonId = p.id
                AND m.creationDate BETWEEN p.creationDate AND {end_date}
            WHERE r.country = {country} AND p.creationDate < {end_date}
            GROUP BY p.id, p.creationDate
            HAVING count(m.id) < 12 * extract(year FROM {end_date})
                + extract(month FROM {end_date})
                - (12 * extract(year FROM p.creationDate) + extract(month FROM p.creationDate)) + 1)
        SELECT z.id AS "zombie.id", count(liker.id) AS zombieLikeCount,
            count(l.PersonId) AS totalLikeCount,
            CASE count(l.PersonId) WHEN 0 THEN 0
                ELSE count(liker.id)::float8 / count(l.PersonId) END AS zombieScore
        FROM Message m
        JOIN Likes l ON l.messageId = m.id
        JOIN Person p ON p.id = l.PersonId AND p.creationDate < {end_date}
        LEFT JOIN zombies liker ON liker.id = p.id
        RIGHT JOIN zombies z ON z.id = m.CreatorPersonId
        GROUP BY z.id ORDER BY zombieScore DESC, z.id LIMIT 100""",
    # International dialog.
    14: """
        WITH pairs AS (
            SELECT r1.personId AS p1, r2.personId AS p2, r1.cityId, r1.city
            FROM Knows k JOIN Resident r1 ON r1.personId = k.a
            JOIN Resident r2 ON r2.personId = k.b
            WHERE r1.country = {country} AND r2.country = {other_country}),
        replies AS (
            SELECT DISTINCT m.CreatorPersonId AS author, r.CreatorPersonId AS replier
            FROM Message m JOIN Message r ON r.parentId = m.id),
        liked AS (
            SELECT DISTINCT m.CreatorPersonId AS author, l.PersonId AS liker
            FROM Message m JOIN Likes l ON l.messageId = m.id),
        scored AS (
            SELECT p1, p2, cityId, city,
                CASE WHEN (p2, p1) IN (SELECT author, replier FROM replies) THEN 4 ELSE 0 END
                + CASE WHEN (p1, p2) IN (SELECT author, replier FROM replies) THEN 1 ELSE 0 END
                + CASE WHEN EXISTS (FROM liked WHERE author = p2 AND liker = p1) THEN 10 ELSE 0 END
                + CASE WHEN EXISTS (FROM liked WHERE author = p1 AND liker = p2) THEN 1 ELSE 0 END
                AS score
            FROM pairs)
        SELECT p1 AS "person1.id", p2 AS "person2.id", city AS "city1.name", score
        FROM scored
        QUALIFY row_number() OVER (PARTITION BY cityId ORDER BY score DESC, p1, p2) = 1
        ORDER BY score DESC, p1, p2 LIMIT 100""",
    # Trusted connection paths through forums created in a given timeframe.
    15: """
        WITH RECURSIVE forums AS (
            SELECT id FROM Forum WHERE creationDate BETWEEN {date} AND {end_date}),
        trust AS (
            SELECT least(m.CreatorPersonId, r.CreatorPersonId) AS a,
                greatest(m.CreatorPersonId, r.CreatorPersonId) AS b,
                sum(CASE WHEN m.parentId IS NULL THEN 1.0::double ELSE 0.5::double END) AS score
            FROM Message m JOIN Message r ON r.parentId = m.id
            WHERE m.forumId IN (FROM forums) AND r.forumId IN (FROM forums)
            GROUP BY 1, 2),
        path(node, cost) USING KEY (node, min(cost)) AS (
            SELECT {person}, 0.0::double
            UNION
            SELECT k.b, p.cost + 1 / (coalesce(t.score, 0) + 1)
            FROM path p JOIN Knows k ON k.a = p.node
            LEFT JOIN trust t ON t.a = least(k.a, k.b) AND t.b = greatest(k.a, k.b))
        SELECT coalesce(min(cost), -1) AS cost FROM path WHERE node = {other_person}""",
    # Fake news detection.
    16: """
        WITH writers AS (
            SELECT DISTINCT t.name AS tag, m.CreatorPersonId AS personId, m.id AS messageId
            FROM Message m JOIN Message_hasTag h ON h.messageId = m.id
            JOIN Tag t ON t.id = h.TagId
            WHERE (t.name = {tag} AND m.creationDate::date BETWEEN {day} AND {end_day})
                OR (t.name = {other_tag} AND m.creationDate::date BETWEEN {day} AND {end_day})),
        few_friends AS (
            SELECT w.tag, w.personId, count(DISTINCT w.messageId) AS messages
            FROM writers w
            LEFT JOIN (SELECT k.a, k.b, f.tag FROM Knows k JOIN writers f ON f.personId = k.b) x
                ON x.a = w.personId AND x.tag = w.tag
            GROUP BY w.tag, w.personId
            HAVING count(DISTINCT x.b) <= 4)
        SELECT personId, a.messages AS messageCountA, b.messages AS messageCountB
        FROM (FROM few_friends WHERE tag = {tag}) a
        JOIN (FROM few_friends WHERE tag = {other_tag}) b USING (personId)
        ORDER BY a.messages + b.messages DESC, personId LIMIT 20""",
    # Information propagation analysis.
    17: """
        WITH tagged AS (
            SELECT * FROM Message WHERE id IN (
                SELECT messageId FROM Message_hasTag
                WHERE TagId IN (SELECT id FROM Tag WHERE name = {tag})))
        SELECT m1.CreatorPersonId AS "person1.id", count(DISTINCT m2.id) AS messageCount
        FROM tagged m1
        JOIN tagged m2 ON m1.creationDate + INTERVAL '4 hours' < m2.creationDate
        JOIN tagged c ON c.parentId = m2.id
        JOIN Forum_hasMember_Person g ON g.ForumId = m1.forumId AND g.PersonId = c.CreatorPersonId
        JOIN Forum_hasMember_Person h ON h.ForumId = m1.forumId AND h.PersonId = m2.CreatorPersonId
        WHERE m1.forumId <> m2.forumId AND c.CreatorPersonId <> m2.CreatorPersonId
            AND NOT EXISTS (SELECT 1 FROM Forum_hasMember_Person n
                WHERE n.ForumId = m2.forumId AND n.PersonId = m1.CreatorPersonId)
        GROUP BY m1.CreatorPersonId ORDER BY messageCount DESC, 1 LIMIT 10""",
    # Friend recommendation.
    18: """
        WITH fans AS (
            SELECT k.a AS fan, k.b AS friend
            FROM Knows k JOIN Person_hasInterest_Tag i ON i.PersonId = k.a
            JOIN Tag t ON t.id = i.TagId WHERE t.name = {tag})
        SELECT x.fan AS "person1.id", y.fan AS "person2.id", count(*) AS mutualFriendCount
        FROM fans x JOIN fans y USING (friend)
        WHERE x.fan <> y.fan
            AND NOT EXISTS (SELECT * FROM Knows k WHERE k.a = y.fan AND k.b = x.fan)
        GROUP BY x.fan, y.fan ORDER BY mutualFriendCount DESC, 1, 2 LIMIT 20""",
    # Interaction path between cities.
    19: """
        WITH RECURSIVE contact AS (
            SELECT least(m.CreatorPersonId, r.CreatorPersonId) AS a,
                greatest(m.CreatorPersonId, r.CreatorPersonId) AS b, count(*) AS n
            FROM Message m JOIN Message r ON r.parentId = m.id
            WHERE m.CreatorPersonId <> r.CreatorPersonId GROUP BY ALL),
        edge AS (
            SELECT k.a, k.b, greatest(round(40 - sqrt(c.n))::bigint, 1) AS w
            FROM Knows k JOIN contact c ON c.a = least(k.a, k.b) AND c.b = greatest(k.a, k.b)),
        path(start, node, cost) USING KEY (start, node, min(cost)) AS (
            SELECT id, id, 0::bigint FROM Person WHERE LocationCityId = {city}
            UNION
            SELECT p.start, e.b, p.cost + e.w FROM path p JOIN edge e ON e.a = p.node),
        ends AS (
            SELECT start, node, cost FROM path JOIN Person q ON q.id = node
            WHERE q.LocationCityId = {other_city})
        SELECT start AS "person1.id", node AS "person2.id", cost AS totalWeight
        FROM ends WHERE cost = (SELECT min(cost) FROM ends) ORDER BY 1, 2""",
    # Recruitment.
    20: """
        WITH RECURSIVE edge AS (
            SELECT k.a, k.b, min(abs(s.classYear - t.classYear)) + 1 AS w
            FROM Knows k JOIN Person_studyAt_University s ON s.PersonId = k.a
            JOIN Person_studyAt_University t
                ON t.PersonId = k.b AND t.UniversityId = s.UniversityId
            GROUP BY k.a, k.b),
        path(node, cost) USING KEY (node, min(cost)) AS (
            SELECT {person}, 0::bigint
            UNION SELECT e.b, p.cost + e.w FROM path p JOIN edge e ON e.a = p.node),
        employees AS (
            SELECT p.node, p.cost FROM path p JOIN Person_workAt_Company w ON w.PersonId = p.node
            JOIN Company c ON c.id = w.CompanyId AND c.name = {company}
            WHERE p.node <> {person})
        SELECT node AS "person1.id", cost AS totalWeight FROM employees
        WHERE cost = (SELECT min(cost) FROM employees) ORDER BY node LIMIT 20""",
}

INTERACTIVE: Final = {
    # Transitive friends with a certain name.
    1: """
        WITH RECURSIVE reached(id, hops) AS (
            SELECT {person}, 0
            UNION SELECT k.b, hops + 1 FROM reached r JOIN Knows k ON k.a = r.id WHERE hops < 3)
        SELECT p.id, p.lastName, min(r.hops) AS distance, p.birthday, p.creationDate, p.gender,
            c.name AS city,
            (SELECT list((u.name, s.classYear, uc.name) ORDER BY u.name, s.classYear)
             FROM Person_studyAt_University s JOIN University u ON u.id = s.UniversityId
             JOIN City uc ON uc.id = u.LocationPlaceId WHERE s.PersonId = p.id) AS universities,
            (SELECT list((o.name, w.workFrom, oc.name) ORDER BY o.name, w.workFrom)
             FROM Person_workAt_Company w JOIN Company o ON o.id = w.CompanyId
             JOIN Country oc ON oc.id = o.LocationPlaceId WHERE w.PersonId = p.id) AS companies
        FROM reached r JOIN Person p USING (id) JOIN City c ON c.id = p.LocationCityId
        WHERE p.firstName = {first_name} AND p.id <> {person}
        GROUP BY p.id, p.lastName, p.birthday, p.creationDate, p.gender, c.name
        ORDER BY distance, p.lastName, p.id LIMIT 20""",
    # Recent messages by friends.
    2: """
        SELECT p.id, p.firstName, p.lastName, m.id AS messageId,
            coalesce(m.imageFile, '') || coalesce(m.content, '') AS text, m.creationDate
        FROM Person p, Message m, Knows k
        WHERE p.id = m.CreatorPersonId AND m.creationDate <= {end_date}
            AND k.a = {person} AND k.b = p.id
        ORDER BY m.creationDate DESC, m.id LIMIT 20""",
    # Friends that have been in given countries.
    3: """
        WITH abroad AS (
            SELECT m.CreatorPersonId AS personId,
                count(*) FILTER (WHERE c.name = {country}) AS xCount,
                count(*) FILTER (WHERE c.name = {other_country}) AS yCount
            FROM Message m JOIN Country c ON c.id = m.LocationCountryId
            WHERE m.creationDate >= {date} AND m.creationDate < {date} + INTERVAL 1 DAY * 400
            GROUP BY m.CreatorPersonId)
        SELECT p.id, p.firstName, p.lastName, xCount, yCount, xCount + yCount AS total
        FROM Circle f JOIN Person p ON p.id = f.friendId
        JOIN Resident r ON r.personId = p.id JOIN abroad x ON x.personId = p.id
        WHERE f.personId = {person} AND r.country NOT IN ({country}, {other_country})
            AND xCount > 0 AND yCount > 0
        ORDER BY 6 DESC, 1 LIMIT 20""",
    # New topics.
    4: """
        WITH posted AS (
            SELECT h.TagId, o.creationDate FROM Knows k JOIN Post o ON o.CreatorPersonId = k.b
            JOIN Post_hasTag_Tag h ON h.PostId = o.id WHERE k.a = {person})
        SELECT t.name, count(*) AS postCount
        FROM posted n JOIN Tag t ON t.id = n.TagId
        WHERE n.creationDate >= {date} AND n.creationDate < {date} + INTERVAL 600 DAYS
            AND NOT EXISTS (SELECT * FROM (SELECT DISTINCT TagId FROM posted
                WHERE creationDate < {date}) old WHERE old.TagId = n.TagId)
        GROUP BY t.name ORDER BY 2 DESC, t.name LIMIT 10""",
    # New groups.
    5: """
        SELECT f.title, count(o.id) AS postCount, f.id
        FROM Circle c
        JOIN Forum_hasMember_Person h ON h.PersonId = c.friendId AND h.creationDate >= {date}
        JOIN Forum f ON f.id = h.ForumId
        LEFT OUTER JOIN Post o ON o.ContainerForumId = f.id AND o.CreatorPersonId = c.friendId
        WHERE c.personId = {person}
        GROUP BY f.id, f.title ORDER BY 2 DESC, f.id LIMIT 20""",
    # Tag co-occurrence.
    6: """
        SELECT t.name, count(*) AS postCount
        FROM Tag t, Post_hasTag_Tag h, Post o, Circle c
        WHERE o.CreatorPersonId = c.friendId AND c.personId = {person} AND h.PostId = o.id
            AND t.id = h.TagId AND t.name <> {tag}
            AND EXISTS (SELECT * FROM Tag t, Post_hasTag_Tag h
                WHERE h.PostId = o.id AND h.TagId = t.id AND t.name = {tag})
        GROUP BY t.name ORDER BY 2 DESC, t.name LIMIT 10""",
    # Recent likers.
    7: """
        WITH latest AS (
            SELECT l.PersonId, max(l.creationDate) AS likedAt
            FROM Likes l JOIN Message m ON m.id = l.messageId WHERE m.CreatorPersonId = {person}
            GROUP BY l.PersonId ORDER BY 2 DESC, 1 LIMIT 20)
        SELECT p.id, p.firstName, p.lastName, l.creationDate, min(m.id) AS messageId,
            coalesce(arg_min(m.imageFile, m.id), arg_min(m.content, m.id)) AS text,
            min(date_diff('minute', m.creationDate, l.creationDate)) AS minutes,
            NOT EXISTS (SELECT 1 FROM Knows k WHERE k.a = {person} AND k.b = p.id) AS isNew
        FROM latest x JOIN Likes l ON l.PersonId = x.PersonId AND l.creationDate = x.likedAt
        JOIN Message m ON m.id = l.messageId AND m.CreatorPersonId = {person}
        JOIN Person p ON p.id = x.PersonId
        GROUP BY p.id, p.firstName, p.lastName, l.creationDate
        ORDER BY l.creationDate DESC, p.id""",
    # Recent replies.
    8: """
        SELECT r.CreatorPersonId, p.firstName, p.lastName, r.creationDate, r.id, r.content
        FROM Message r, Message m, Person p
        WHERE r.parentId = m.id AND m.CreatorPersonId = {person} AND p.id = r.CreatorPersonId
        ORDER BY r.creationDate DESC, 5 LIMIT 20""",
    # Recent messages by friends or friends of friends.
    9: """
        SELECT p.id, p.firstName, p.lastName, m.id AS messageId,
            concat(m.imageFile, m.content) AS text, m.creationDate
        FROM (SELECT friendId FROM Circle WHERE personId = {person}) f
        JOIN Person p ON p.id = f.friendId JOIN Message m ON m.CreatorPersonId = p.id
        WHERE m.creationDate < {end_date}
        ORDER BY m.creationDate DESC, m.id FETCH FIRST 20 ROWS ONLY""",
    # Friend recommendation by interests.
    10: """
        SELECT p.id, p.firstName, p.lastName,
            (SELECT count(DISTINCT o.id) FROM Post o, Post_hasTag_Tag h
             WHERE o.CreatorPersonId = p.id AND h.PostId = o.id
                AND EXISTS (SELECT * FROM Person_hasInterest_Tag i
                    WHERE i.PersonId = {person} AND i.TagId = h.TagId))
            - (SELECT count(*) FROM Post o WHERE o.CreatorPersonId = p.id
                AND NOT EXISTS (SELECT * FROM Person_hasInterest_Tag i, Post_hasTag_Tag h
                    WHERE i.PersonId = {person} AND i.TagId = h.TagId AND h.PostId = o.id))
            AS score,
            p.gender, c.name
        FROM Person p JOIN City c ON c.id = p.LocationCityId
        WHERE p.id IN (
                SELECT l.b FROM Knows k JOIN Knows l ON l.a = k.b
                WHERE k.a = {person} AND l.b <> {person}
                    AND NOT EXISTS (SELECT * FROM Knows d WHERE d.a = {person} AND d.b = l.b))
            AND ((extract(month FROM p.birthday) = {month} AND extract(day FROM p.birthday) >= 21)
                OR (month(p.birthday) = {month} % 12 + 1 AND day(p.birthday) < 22))
        ORDER BY score DESC, p.id LIMIT 10""",
    # Job referral.
    11: """
        SELECT p.id, p.firstName, p.lastName, o.name AS company, w.workFrom
        FROM Circle f JOIN Person p ON p.id = f.friendId
        JOIN Person_workAt_Company w ON w.PersonId = p.id AND w.workFrom < {year}
        JOIN Company o ON o.id = w.CompanyId JOIN Country c ON c.id = o.LocationPlaceId
        WHERE f.personId = {person} AND c.name = {country}
        ORDER BY w.workFrom, p.id, o.name DESC LIMIT 10""",
    # Expert search.
    12: """
        WITH RECURSIVE below(id) AS (
            SELECT id FROM TagClass WHERE name = {tag_class}
            UNION SELECT c.id FROM below b JOIN TagClass c ON c.SubclassOfTagClassId = b.id)
        SELECT p.id, p.firstName, p.lastName,
            array_agg(DISTINCT t.name ORDER BY t.name) AS tags, count(DISTINCT c.id) AS replyCount
        FROM Knows k JOIN Person p ON p.id = k.b
        JOIN Comment c ON c.CreatorPersonId = p.id
        JOIN Post_hasTag_Tag h ON h.PostId = c.ParentPostId
        JOIN Tag t ON t.id = h.TagId
        WHERE k.a = {person} AND t.TypeTagClassId IN (SELECT id FROM below)
        GROUP BY p.id, p.firstName, p.lastName ORDER BY replyCount DESC, p.id LIMIT 20""",
    # Single shortest path.
    13: """
        WITH RECURSIVE path(node, hops) USING KEY (node, min(hops)) AS (
            SELECT {person}, 0
            UNION SELECT k.b, p.hops + 1 FROM path p JOIN Knows k ON k.a = p.node)
        SELECT coalesce((SELECT hops FROM path WHERE node = {other_person}), -1) AS length""",
    # Trusted connection paths: all shortest paths, with the interactions along them.
    14: """
        WITH RECURSIVE distance(node, hops) USING KEY (node, min(hops)) AS (
            SELECT {person}, 0
            UNION SELECT k.b, d.hops + 1 FROM distance d JOIN Knows k ON k.a = d.node),
        replies AS (
            SELECT m.CreatorPersonId AS a, r.CreatorPersonId AS b,
                sum(CASE WHEN m.parentId IS NULL THEN 1.0::double ELSE 0.5::double END) AS score
            FROM Message m JOIN Message r ON r.parentId = m.id GROUP BY 1, 2),
        weight AS (
            SELECT a, b, sum(score) AS score
            FROM (SELECT a, b, score FROM replies UNION ALL SELECT b, a, score FROM replies)
            GROUP BY a, b),
        walk(node, hops, persons, score) AS (
            SELECT {other_person}, (SELECT hops FROM distance WHERE node = {other_person}),
                [{other_person}], 0.0::double
            UNION ALL
            SELECT k.b, d.hops, list_prepend(k.b, w.persons), w.score + coalesce(x.score, 0)
            FROM walk w JOIN Knows k ON k.a = w.node
            JOIN distance d ON d.node = k.b AND d.hops = w.hops - 1
            LEFT JOIN weight x ON x.a = k.a AND x.b = k.b)
        SELECT persons, score FROM walk WHERE node = {person} ORDER BY score DESC, persons""",
}

QUERIES: Final = {
    **{f"bi-{number}": text for number, text in BI.items()},
    **{f"ic-{number}": text for number, text in INTERACTIVE.items()},
}
