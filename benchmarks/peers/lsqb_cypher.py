"""LSQB queries in Cypher, over one relation table for each relation, of the same name.

A message is a post or a comment and has no table; `knows` has each pair once and is read in both
directions. Kùzu and its fork plan the atoms much in the order of the text, and a bad order makes q4
60 times slower in Kùzu. So each text is the fastest in Kùzu of the two or three orders tried. One
table of messages for posts and comments was slower, and so was `knows` stored in both directions.
"""

from __future__ import annotations

from typing import Final

_MESSAGE: Final = "(m:Post:Comment)"
_TAGGED: Final = "[:Post_hasTag_Tag|:Comment_hasTag_Tag]"
_WRITTEN: Final = "[:Post_hasCreator_Person|:Comment_hasCreator_Person]"
_REPLY: Final = "[:Comment_replyOf_Post|:Comment_replyOf_Comment]"
_LIKES: Final = "[:Person_likes_Post|:Person_likes_Comment]"
_LIVES: Final = "-[:Person_isLocatedIn_City]->(:City)-[:City_isPartOf_Country]->"
_KNOWS: Final = "-[:Person_knows_Person]-"

_Q5: Final = f"""
    MATCH (t:Tag)<-{_TAGGED}-{_MESSAGE}<-{_REPLY}-(c:Comment)-[:Comment_hasTag_Tag]->(u:Tag)
    WHERE t.id <> u.id"""
_Q6: Final = f"""
    MATCH (a:Person){_KNOWS}(b:Person){_KNOWS}(c:Person)-[:Person_hasInterest_Tag]->(:Tag)
    WHERE a.id <> c.id"""

CYPHER: Final = {
    "q1": """
    MATCH (:TagClass)<-[:Tag_hasType_TagClass]-(:Tag)<-[:Comment_hasTag_Tag]-(:Comment)
          -[:Comment_replyOf_Post]->(:Post)<-[:Forum_containerOf_Post]-(:Forum)
          -[:Forum_hasMember_Person]->(:Person)-[:Person_isLocatedIn_City]->(:City)
          -[:City_isPartOf_Country]->(:Country)
    RETURN count(*)""",
    "q2": f"""
    MATCH (a:Person){_KNOWS}(b:Person),
          (a)<-[:Comment_hasCreator_Person]-(c:Comment)-[:Comment_replyOf_Post]->(p:Post)
          -[:Post_hasCreator_Person]->(b)
    RETURN count(*)""",
    "q3": f"""
    MATCH (a:Person){_KNOWS}(b:Person), (b){_KNOWS}(c:Person), (c){_KNOWS}(a),
          (a){_LIVES}(l:Country), (b){_LIVES}(l), (c){_LIVES}(l)
    RETURN count(*)""",
    "q4": f"""
    MATCH {_MESSAGE}-{_TAGGED}->(:Tag), (m)-{_WRITTEN}->(:Person),
          (m)<-{_LIKES}-(:Person), (m)<-{_REPLY}-(:Comment)
    RETURN count(*)""",
    "q5": f"{_Q5} RETURN count(*)",
    "q6": f"{_Q6} RETURN count(*)",
    "q7": f"""
    MATCH {_MESSAGE}-{_WRITTEN}->(:Person), (m)-{_TAGGED}->(:Tag)
    OPTIONAL MATCH (m)<-{_REPLY}-(:Comment)
    OPTIONAL MATCH (m)<-{_LIKES}-(:Person)
    RETURN count(*)""",
    "q8": f"""{_Q5}
    AND NOT EXISTS {{ MATCH (c)-[:Comment_hasTag_Tag]->(t) }}
    RETURN count(*)""",
    "q9": f"""{_Q6}
    AND NOT EXISTS {{ MATCH (a){_KNOWS}(c) }}
    RETURN count(*)""",
}
